"""Which error codes stand in an answer."""

from collections import defaultdict

from protocol.error_counts import error_counter
from protocol.messages.delete_records import DeleteRecordsResponse
from protocol.messages.fetch import FetchResponse
from protocol.messages.metadata import MetadataResponse
from protocol.messages.produce import ProduceResponse


def counted(answer: object) -> dict[int, int]:
    codes: defaultdict[int, int] = defaultdict(int)
    error_counter(type(answer))(answer, codes)
    return dict(codes)


def test_every_partition_of_every_topic_counts() -> None:
    part = ProduceResponse.Response.PartitionResponse
    answer = ProduceResponse(
        responses=[
            ProduceResponse.Response(
                name="a", partition_responses=[part(index=n, error_code=n, base_offset=0) for n in (0, 3)]
            ),
            ProduceResponse.Response(name="b", partition_responses=[part(index=0, error_code=3, base_offset=0)]),
        ]
    )
    assert counted(answer) == {0: 1, 3: 2}


def test_the_code_of_the_answer_itself_counts_too() -> None:
    assert counted(FetchResponse(error_code=70, responses=[])) == {70: 1}


def test_of_metadata_only_the_parts_count_as_in_kafka() -> None:
    topic = MetadataResponse.Topic(error_code=3, name="a", partitions=[])
    assert counted(MetadataResponse(brokers=[], controller_id=1, topics=[topic])) == {3: 1}


def test_an_answer_with_nothing_in_it_brings_nothing() -> None:
    assert counted(DeleteRecordsResponse(topics=[])) == {}
