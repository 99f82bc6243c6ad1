"""A script that compiles the modules in its arguments with mypyc, beside their sources in the working directory."""

import sys

from mypyc.build import mypycify
from setuptools import Distribution
from setuptools.command.build_ext import build_ext

# The sources are checked by `make check`, under the project's own settings. Here types are only looked up.
_OPTIONS = ("--config-file=", "--cache-dir=build/mypy", "--ignore-missing-imports")

extensions = mypycify([*_OPTIONS, *sys.argv[1:]], opt_level="2", debug_level="0", group_name="ottla")
for extension in extensions:
    # What the next C compiler warns of is no reason to do without.
    extension.extra_compile_args = [option for option in extension.extra_compile_args if option != "-Werror"]
command = build_ext(Distribution({"name": "ottla", "ext_modules": extensions}))
command.inplace = True
command.build_temp = "build/objects"
command.ensure_finalized()
command.run()
