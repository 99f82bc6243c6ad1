from config.listener_texts import ListenerTexts

GIVEN = {
    "sasl.jaas.config": "for all",
    "listener.name.outside.sasl.jaas.config": "for outside",
    "listener.name.outside.plain.sasl.jaas.config": "for PLAIN outside",
}


def test_the_most_specific_name_counts() -> None:
    outside, inside = ListenerTexts("OUTSIDE", GIVEN), ListenerTexts("INSIDE", GIVEN)
    assert outside.text("sasl.jaas.config", "PLAIN") == "for PLAIN outside"
    assert outside.text("sasl.jaas.config", "SCRAM-SHA-256") == "for outside"
    assert inside.text("sasl.jaas.config", "PLAIN") == "for all"


def test_what_is_not_given_has_neither_name_nor_text() -> None:
    outside = ListenerTexts("OUTSIDE", GIVEN)
    assert outside.name("ssl.keystore.location") is None
    assert outside.text("ssl.keystore.location") is None
