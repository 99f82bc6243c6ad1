"""The one list of the boards."""

from typing import Final

from boards.cluster import CLUSTER
from boards.groups import GROUPS
from boards.overview import OVERVIEW
from boards.requests import REQUESTS
from boards.storage import STORAGE
from boards.topics import TOPICS

BOARDS: Final = (OVERVIEW, TOPICS, GROUPS, REQUESTS, STORAGE, CLUSTER)
