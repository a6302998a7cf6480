"""Changes of a vehicle's information: the request is the new information, the answer its difference from the last one.

    milepost handler run examples/handlers/difference.py --config milepost.toml

A vehicle publishes its information on service/vehicle-info, and receives the answer on service/vehicle-info/accept. The requests
of different vehicles are independent, so up to four processes can share the work.
"""

from typing import TypedDict, cast

from milepost.handlers import Handler, Message, Store

VALUE = {"type": ["string", "number", "boolean"], "maxLength": 200}
INFORMATION = {
    "type": "object",
    "properties": {
        "speed_mps": {"type": "number", "minimum": 0, "maximum": 100},
        "fuel": {"type": "number", "minimum": 0, "maximum": 1},
        "doors_open": {"type": "integer", "minimum": 0, "maximum": 8},
    },
    "additionalProperties": VALUE,
    "propertyNames": {"maxLength": 64},
    "minProperties": 1,
    "maxProperties": 50,
}
DIFFERENCE = {
    "type": "object",
    "properties": {
        "commit": {"type": "integer", "minimum": 1},
        "added": {"type": "object", "additionalProperties": VALUE},
        "removed": {"type": "array", "items": {"type": "string"}},
        "changed": {"type": "object", "additionalProperties": {"type": "object", "properties": {"from": VALUE, "to": VALUE}}},
    },
    "required": ["commit", "added", "removed", "changed"],
    "additionalProperties": False,
}

Information = dict[str, str | float | bool]


class Commit(TypedDict):
    number: int
    information: Information


app = Handler("difference", partitions=4)


@app.on("service/vehicle-info", accepts=INFORMATION, answers=DIFFERENCE)
def compare(request: Information, message: Message, store: Store) -> dict[str, object]:
    last = cast("Commit", store.get(message.source, {"number": 0, "information": {}}))
    before = last["information"]
    store.put(message.source, {"number": last["number"] + 1, "information": request})
    return {
        "commit": last["number"] + 1,
        "added": {name: value for name, value in request.items() if name not in before},
        "removed": sorted(before.keys() - request.keys()),
        "changed": {
            name: {"from": before[name], "to": value}
            for name, value in request.items()
            if name in before and before[name] != value
        },
    }
