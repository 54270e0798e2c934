"""What runs within Redis, and what it keeps there. Pure.

A script is the only way to *decide* on the server: it looks whose the partitions are and what is in
the keys, then writes, and nothing else runs meanwhile. ``MULTI`` cannot look, and ``WATCH`` would
have to name every key and start again whenever somebody else touches one.

Redis does not undo what a script did before an error. So everything that can be refused is asked
for before the first write: memory, disk, replicas and role (by the server itself, as the script is
one with ``#!lua``, and the keys it names), owners, types and rights (by the script). After the
first write Redis refuses no command for lack of memory or disk, nobody can kill the script, and
what is appended to the file is one transaction: a server that dies keeps all of it or nothing. The
positions come last nevertheless: if an error is possible that nobody has thought of, then records
are run again over values that are absolute, and are not lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from onceward.broker.client import TopicPartition

from .effects import EffectId
from .positions import Advance, Position, Start

_FORGET: Final = """
local function forget(below)
  for _, id in ipairs(redis.call('HKEYS', KEYS[2])) do
    local place, offset = string.match(id, '^([^:]*:%d+):(%d+):')
    if below[place] and tonumber(offset) < below[place] then
      redis.call('HDEL', KEYS[2], id)
    end
  end
end
"""
_POSITION: Final = "'^(%d+) (%d+) (%d+)$'"

TAKE_OVER: Final = f"""#!lua
-- take over
{_FORGET}
local taken, below = {{}}, {{}}
for number, start in ipairs(cmsgpack.unpack(ARGV[1])) do
  local place, position, committed, is_known = unpack(start)
  local stored = redis.call('HGET', KEYS[1], place)
  local at, epoch, effects = position, '0', '0'
  if stored then
    at, epoch, effects = string.match(stored, {_POSITION})
    if not at then
      return redis.error_reply('ERR ' .. KEYS[1] .. ' has no position in ' .. place)
    end
  elseif is_known then
    return {{'lost', place}}
  end
  taken[number] = {{place, at, string.format('%.0f', epoch + 1), effects}}
  below[place] = tonumber(committed)
end
forget(below)
for _, each in ipairs(taken) do
  redis.call('HSET', KEYS[1], each[1], table.concat(each, ' ', 2))
end
return {{'done', taken, redis.call('HGETALL', KEYS[2])}}
"""
"""Keys: positions, refused. Argument: ``taken_over``."""

COMMIT: Final = f"""#!lua
-- commit
{_FORGET}
local kind, stored_as, ttl, longest = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local refused = cmsgpack.unpack(ARGV[6])
local moved, below = {{}}, {{}}
for number, advance in ipairs(cmsgpack.unpack(ARGV[5])) do
  local place, expected, owner, following, more = unpack(advance)
  local at, epoch, effects =
    string.match(redis.call('HGET', KEYS[1], place) or '', {_POSITION})
  if at ~= expected or epoch ~= owner then
    return {{'fenced', place}}
  end
  moved[number] = {{place, following, epoch, string.format('%.0f', effects + more)}}
  below[place] = tonumber(expected)
end
redis.call('HLEN', KEYS[2])

local wrong = {{}}
for number = 3, #KEYS do
  local found = redis.call('TYPE', KEYS[number]).ok
  if found ~= 'none' and found ~= stored_as then
    wrong[#wrong + 1] = {{number - 3, found}}
  end
end
if #wrong > 0 then
  return {{'wrong', wrong}}
end

local key = KEYS[3]
local needed = {{
  hash = {{{{'HSET', key, '', ''}}, {{'HDEL', key, ''}}, {{'UNLINK', key}}}},
  string = {{{{'SET', key, ''}}, {{'UNLINK', key}}}},
  list = {{{{'RPUSH', key, ''}}, longest ~= '' and {{'LTRIM', key, '0', '0'}} or nil}},
  stream = {{{{'XADD', key, '*', '', ''}}}}
}}
if key then
  local commands = needed[stored_as]
  commands[#commands + 1] = ttl ~= '' and {{'PEXPIRE', key, ttl}} or nil
  for _, command in ipairs(commands) do
    if not redis.acl_check_cmd(unpack(command)) then
      return {{'forbidden', command[1]}}
    end
  end
end

local apply = {{}}
function apply.hash(key, set, gone)
  if #set > 0 then redis.call('HSET', key, unpack(set)) end
  if #gone > 0 then redis.call('HDEL', key, unpack(gone)) end
end
function apply.string(key, set)
  if #set > 0 then redis.call('SET', key, set[1]) end
end
function apply.list(key, set)
  redis.call('RPUSH', key, unpack(set))
end
function apply.stream(key, set)
  if longest == '' then
    redis.call('XADD', key, '*', unpack(set))
  else
    redis.call('XADD', key, 'MAXLEN', '~', longest, '*', unpack(set))
  end
end
for number = 7, #ARGV do
  local offset, piece = 0, nil
  while offset ~= -1 do
    offset, piece = cmsgpack.unpack_one(ARGV[number], offset)
    local key = KEYS[piece[1] + 3]
    if piece[2] then redis.call('UNLINK', key) end
    apply[stored_as](key, piece[3], piece[4])
  end
end
for number = 3, #KEYS do
  if kind == 'list' and longest ~= '' then
    redis.call('LTRIM', KEYS[number], '-' .. longest, '-1')
  end
  if ttl ~= '' then redis.call('PEXPIRE', KEYS[number], ttl) end
end
if #refused > 0 then
  forget(below)
  for _, each in ipairs(refused) do
    redis.call('HSET', KEYS[2], each[1], each[2])
  end
end
for _, each in ipairs(moved) do
  redis.call('HSET', KEYS[1], each[1], table.concat(each, ' ', 2))
end
return {{'done'}}
"""
"""Keys: positions, refused, those written to. Arguments: kind, Redis's type of it, time to live in
ms, longest length, ``advanced``, ``refused``, ``redis_changes.Changes.pieces``."""


def hash_tag(prefix: str) -> str:
    """The part in braces that alone decides the slot of a Redis Cluster, with them, or nothing."""
    start = prefix.find("{")
    end = prefix.find("}", start + 1)
    return prefix[start : end + 1] if start >= 0 and start + 1 < end else ""


def keys_of(app: str, sink: str, tag: str) -> tuple[str, str]:
    """The hashes with the positions, ``topic:partition`` to ``next_offset epoch effects``, and with
    what was refused."""
    owner = f"{quote(app, '')}:{quote(sink, '')}"
    return f"{tag}onceward_positions:{owner}", f"{tag}onceward_refused:{owner}"


def place_of(tp: TopicPartition) -> str:
    return f"{tp.topic}:{tp.partition}"


def tp_of(place: bytes) -> TopicPartition:
    topic, _, partition = place.decode().rpartition(":")
    return TopicPartition(topic, int(partition))


def position_of(stored: bytes) -> Position:
    """Raises ValueError."""
    next_offset, epoch, effects = map(int, stored.split())
    return Position(next_offset, epoch, effects)


def effect_id_of(field: bytes) -> EffectId:
    topic, partition, offset, number, agent = field.decode().split(":", 4)
    return EffectId(topic, int(partition), int(offset), agent, int(number))


def taken_over(starts: Mapping[TopicPartition, Start], known: Iterable[TopicPartition]) -> bytes:
    """``known``: must be there if the group has committed something."""
    names = frozenset(known)
    return _packed(
        [
            place_of(tp),
            str(start.position),
            "" if start.committed is None else str(start.committed),
            start.committed is not None and tp in names,
        ]
        for tp, start in sorted(starts.items())
    )


def advanced(advances: Iterable[Advance]) -> bytes:
    return _packed(
        [place_of(tp), str(expected), str(epoch), str(next_offset), str(effects)]
        for tp, expected, epoch, next_offset, effects in advances
    )


def refused(refusals: Iterable[tuple[EffectId, str]]) -> bytes:
    return _packed(
        [f"{id_.topic}:{id_.partition}:{id_.offset}:{id_.number}:{id_.agent}", reason]
        for id_, reason in refusals
    )


def _packed(rows: Iterable[list[Any]]) -> bytes:
    return msgspec.msgpack.encode(list(rows))
