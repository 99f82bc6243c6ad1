"""The one list of the boards."""

from typing import Final

from boards.cluster import CLUSTER
from boards.groups import GROUPS
from boards.overview import OVERVIEW
from boards.requests import REQUESTS
from boards.share_groups import SHARE_GROUPS
from boards.storage import STORAGE
from boards.topics import TOPICS

BOARDS: Final = (OVERVIEW, TOPICS, GROUPS, SHARE_GROUPS, REQUESTS, STORAGE, CLUSTER)
