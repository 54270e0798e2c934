import subprocess
import sys

from onceward.broker.protocol import messages
from onceward.broker.protocol.api import APIS, ApiKey
from onceward.broker.protocol.fields import schema_of


def test_every_api_is_in_the_table_under_its_own_key() -> None:
    assert set(APIS) == set(ApiKey)
    for key, api in APIS.items():
        assert api.key == key
        name = api.key.name.replace("_", "").lower()
        assert api.request.__name__.lower() == f"{name}request"
        assert api.response.__name__.lower() == f"{name}response"


def test_request_and_response_agree_on_versions() -> None:
    for api in APIS.values():
        assert schema_of(api.request)[1:] == schema_of(api.response)[1:]


def test_the_versions_are_those_of_kafka_4_1() -> None:
    ranges = {api.key.name: (api.min_version, api.max_version) for api in APIS.values()}
    assert ranges["PRODUCE"] == (3, 13)
    assert ranges["FETCH"] == (4, 18)
    assert ranges["METADATA"] == (0, 13)
    assert ranges["OFFSET_COMMIT"] == (2, 10)
    assert ranges["OFFSET_FETCH"] == (1, 10)
    assert ranges["END_TXN"] == (0, 5)
    assert ranges["API_VERSIONS"] == (0, 4)
    assert APIS[ApiKey.FETCH].first_flexible == 12
    assert APIS[ApiKey.SASL_HANDSHAKE].first_flexible == 32767
    assert not APIS[ApiKey.PRODUCE].supports(2)


def test_every_message_class_is_exported_by_name() -> None:
    exported = {name for name in messages.__all__ if hasattr(messages, name)}
    assert exported == {
        cls.__name__ for api in APIS.values() for cls in (api.request, api.response)
    }


def test_the_import_compiles_nothing_and_pulls_in_no_oracle() -> None:
    code = (
        "import sys, onceward.broker.protocol.codec as codec\n"
        "from onceward.broker.protocol.schema import compile_decoder\n"
        "assert not {'kio', 'asyncio', 'socket'} & set(sys.modules), sorted(sys.modules)\n"
        "assert compile_decoder.cache_info().currsize == 0\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
