"""What is asked, a module for each family of APIs; each has a fresh broker and defines `run(exchange)`."""
