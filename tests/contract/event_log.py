"""The contract of every EventLog. The test module of each engine inherits it.

The contract is about acknowledged records: each is present at least once, in order for a sequential appender, and every
reader sees the same records at the same offsets for ever. An engine may land a record twice, land a record whose append
had an unknown outcome, skip offsets, and set timestamps backwards. The tests tolerate all of this, as all other code
must.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from eventstore.errors import AppendRefused, LogMismatch, LogUnavailable, TransientError
from eventstore.log import (
    CLIQUES,
    FLEET,
    FLEET_0,
    INSTALLS,
    MAX_RECORD_BYTES,
    REPLICAS,
    ZONES,
    Batch,
    EventLog,
    Partition,
)
from tests.contract.engine import KEY, LogUnderTest, first_values, numbered, put, read_all, read_to_end

ZONES_0 = Partition(ZONES, 0)
ZONES_1 = Partition(ZONES, 1)


class EventLogContract:
    """The contract. A subclass provides the fixture `engine`: a LogUnderTest, closed after the test."""

    # -- appends

    async def test_acknowledged_records_are_present_after_reopening(self, engine: LogUnderTest) -> None:
        values = numbered("v", 50)
        async with engine.opened() as log:
            await put(log, ZONES_0, *values)
        async with engine.opened() as log:
            assert first_values(await read_all(log, ZONES_0)) == values

    async def test_keys_and_values_are_read_as_written(self, engine: LogUnderTest) -> None:
        pairs = [(b"zone", bytes(range(256))), (b"", b"empty key"), (b"\x00\xff", b""), (b"k", b"x" * 300_000)]
        async with engine.opened() as log:
            for key, value in pairs:
                await put(log, ZONES_0, value, key=key)
            records = await read_all(log, ZONES_0)
        assert list(dict.fromkeys((record.key, record.value) for record in records)) == pairs
        assert all(record.headers == () and record.timestamp_ms > 0 for record in records)

    async def test_headers_are_read_as_written(self, engine: LogUnderTest) -> None:
        sent = [(), (("traceparent", b"00-1"), ("traceparent", b""), ("", b"\x00\xff")), (), (("n", b"x" * 70_000),)]
        async with engine.opened() as log:
            for number, headers in enumerate(sent):
                await put(log, ZONES_0, b"%d" % number, headers=headers)
        async with engine.opened() as log:
            records = await read_all(log, ZONES_0)
        found = {record.value: (record.key, record.headers) for record in records}
        assert found == {b"%d" % number: (KEY, headers) for number, headers in enumerate(sent)}

    async def test_headers_count_towards_the_record_size(self, engine: LogUnderTest) -> None:
        async with engine.opened() as log:
            with pytest.raises(AppendRefused):
                await log.append(ZONES_0, b"", b"x" * 1_000, headers=(("n", b"x" * (MAX_RECORD_BYTES - 1_000)),))

    async def test_records_can_be_appended_to_every_topic(self, engine: LogUnderTest) -> None:
        last = engine.partition_count - 1
        targets = [Partition(ZONES, last), Partition(CLIQUES, last), FLEET_0, Partition(INSTALLS, last)]
        targets.append(Partition(REPLICAS, 0))
        async with engine.opened() as log:
            for target in targets:
                await put(log, target, str(target).encode())
            for target in targets:
                assert first_values(await read_all(log, target)) == [str(target).encode()]

    async def test_a_sequential_appender_keeps_its_order(self, engine: LogUnderTest) -> None:
        appenders = [(partition, numbered(f"a{i}", 20)) for partition in (ZONES_0, FLEET_0) for i in range(5)]
        async with engine.opened() as log:
            async with asyncio.TaskGroup() as tasks:
                for partition, values in appenders:
                    tasks.create_task(put(log, partition, *values))
            found = await read_to_end(log, {ZONES_0: 0, FLEET_0: 0})
        for partition, values in appenders:
            own = set(values)
            assert [v for v in first_values(found[partition]) if v in own] == values
        assert len(first_values(found[ZONES_0])) == 100

    async def test_many_concurrent_appends(self, engine: LogUnderTest) -> None:
        values = numbered("v", 400)
        async with engine.opened() as log:
            async with asyncio.timeout(engine.patience_s), asyncio.TaskGroup() as tasks:
                for i, value in enumerate(values):
                    tasks.create_task(put(log, Partition(ZONES, i % engine.partition_count), value))
            found = await read_to_end(log, dict.fromkeys(engine.zones(), 0))
        assert sorted(v for records in found.values() for v in first_values(records)) == sorted(values)

    async def test_an_oversized_record_is_refused(self, engine: LogUnderTest) -> None:
        largest = b"x" * (MAX_RECORD_BYTES - len(KEY))
        async with engine.opened() as log:
            with pytest.raises(AppendRefused, match=f"{MAX_RECORD_BYTES + 1}.*{MAX_RECORD_BYTES}"):
                await log.append(ZONES_0, KEY, largest + b"x")
            await put(log, ZONES_0, largest, b"after")
            assert first_values(await read_all(log, ZONES_0)) == [largest, b"after"]

    async def test_an_append_to_an_unknown_partition_is_refused_by_name(self, engine: LogUnderTest) -> None:
        async with engine.opened() as log:
            for missing in (Partition(ZONES, engine.partition_count), Partition(FLEET, 1), Partition("other", 0)):
                with pytest.raises(AppendRefused, match=str(missing)):
                    await log.append(missing, KEY, b"value")

    async def test_an_append_after_its_deadline_has_an_unknown_outcome(self, engine: LogUnderTest) -> None:
        async with engine.opened() as log:
            with pytest.raises(TransientError):
                await log.append(ZONES_0, KEY, b"late", timeout_s=0)
            await put(log, ZONES_0, b"next")
            assert set(first_values(await read_all(log, ZONES_0))) - {b"late"} == {b"next"}

    async def test_a_cancelled_append_does_not_affect_others(self, engine: LogUnderTest) -> None:
        kept, dropped = numbered("kept", 40), numbered("dropped", 40)
        async with engine.opened() as log:
            async with asyncio.TaskGroup() as tasks:
                for keep, drop in zip(kept, dropped, strict=True):
                    tasks.create_task(put(log, ZONES_0, keep))
                    victim = tasks.create_task(put(log, ZONES_0, drop))
                    asyncio.get_running_loop().call_soon(victim.cancel)
            await put(log, ZONES_0, b"after")
            values = first_values(await read_all(log, ZONES_0))
        assert set(kept) <= set(values) <= {*kept, *dropped, b"after"}

    async def test_a_close_ends_all_appends_and_loses_no_acknowledged_record(self, engine: LogUnderTest) -> None:
        acknowledged: list[bytes] = []
        hundred_acknowledged = asyncio.Event()

        async def append_until_closed(log: EventLog, appender: int) -> None:
            for value in numbered(f"a{appender}", 10_000):
                try:
                    await log.append(ZONES_0, KEY, value)
                    acknowledged.append(value)
                    if len(acknowledged) == 100:
                        hundred_acknowledged.set()
                except LogUnavailable:
                    return
                except TransientError:
                    continue

        log = await engine.open()
        async with asyncio.timeout(engine.patience_s), asyncio.TaskGroup() as tasks:
            for appender in range(20):
                tasks.create_task(append_until_closed(log, appender))
            await hundred_acknowledged.wait()
            await log.close()
        async with engine.opened() as log:
            assert set(acknowledged) <= set(first_values(await read_all(log, ZONES_0)))

    # -- reads

    async def test_a_read_can_start_at_any_position(self, engine: LogUnderTest) -> None:
        async with engine.opened() as log:
            await put(log, ZONES_0, *numbered("v", 30))
            await engine.settle(log)
            everything = await read_all(log, ZONES_0)
            for i, record in enumerate(everything):
                assert (await read_to_end(log, {ZONES_0: record.offset}))[ZONES_0] == everything[i:]
                assert (await read_to_end(log, {ZONES_0: record.offset + 1}))[ZONES_0] == everything[i + 1 :]

    async def test_a_reader_gets_records_appended_later(self, engine: LogUnderTest) -> None:
        async with engine.opened() as log:
            await put(log, ZONES_0, b"before")
            async with aclosing(log.read({ZONES_0: await log.end(ZONES_0)})) as batches:
                waiting = asyncio.create_task(self._until(batches, b"third"))
                for value in (b"first", b"second", b"third"):
                    await asyncio.sleep(0.01)
                    await put(log, ZONES_0, value)
                async with asyncio.timeout(engine.patience_s):
                    seen = await waiting
        assert [v for v in seen if v != b"before"] == [b"first", b"second", b"third"]

    async def test_one_reader_reads_several_partitions(self, engine: LogUnderTest) -> None:
        written = {partition: numbered(str(partition), 25) for partition in (*engine.zones(), FLEET_0)}
        async with engine.opened() as log:
            for partition, values in written.items():
                await put(log, partition, *values)
            found = await read_to_end(log, dict.fromkeys(written, 0))
        assert {partition: first_values(records) for partition, records in found.items()} == written

    async def test_all_readers_see_the_same_records(self, engine: LogUnderTest) -> None:
        positions = {ZONES_0: 0, FLEET_0: 0}
        async with engine.opened() as log:
            for i in range(40):
                await put(log, FLEET_0 if i % 3 else ZONES_0, b"%d" % i)
            ends = {partition: await log.end(partition) for partition in positions}
            one, other = await asyncio.gather(*(read_to_end(log, positions, ends) for _ in range(2)))
        async with engine.opened() as log:
            later = await read_to_end(log, positions, ends)
        assert one == other == later
        for records in one.values():
            offsets = [record.offset for record in records]
            assert offsets == sorted(set(offsets))

    async def test_a_cancelled_reader_does_not_affect_others(self, engine: LogUnderTest) -> None:
        async with (
            engine.opened() as log,
            aclosing(log.read({ZONES_0: 0})) as kept,
            aclosing(log.read({ZONES_0: 0})) as dropped,
        ):
            waiting = [asyncio.create_task(self._until(batches, b"v")) for batches in (kept, dropped)]
            await asyncio.sleep(0.01)
            waiting[1].cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting[1]
            await put(log, ZONES_0, b"v")
            async with asyncio.timeout(engine.patience_s):
                assert (await waiting[0])[-1] == b"v"

    async def test_a_closed_log_ends_its_readers_and_refuses_appends(self, engine: LogUnderTest) -> None:
        log = await engine.open()
        batches = log.read({ZONES_0: 0})
        waiting = asyncio.create_task(self._until(batches, b"never"))
        await asyncio.sleep(0.01)
        await log.close()
        await log.close()
        async with asyncio.timeout(engine.patience_s):
            with pytest.raises(LogUnavailable):
                await waiting
            with pytest.raises(LogUnavailable):
                await log.append(ZONES_0, KEY, b"value")

    # -- positions

    async def test_an_empty_partition_begins_and_ends_at_zero(self, engine: LogUnderTest) -> None:
        async with engine.opened() as log:
            assert (await log.begin(ZONES_1), await log.end(ZONES_1)) == (0, 0)
            assert await log.position_at(ZONES_1, 0) == 0
            assert [log.partitions(ZONES), log.partitions(FLEET)] == [engine.zones(), (FLEET_0,)]
            assert log.partition_count == engine.partition_count

    async def test_the_end_is_after_the_last_record(self, engine: LogUnderTest) -> None:
        async with engine.opened() as log:
            await put(log, ZONES_0, *numbered("v", 10))
            await engine.settle(log)
            records = (await read_to_end(log, {ZONES_0: 0}))[ZONES_0]
            assert await log.begin(ZONES_0) == records[0].offset
            assert await log.end(ZONES_0) >= records[-1].offset + 1
            assert await log.end(ZONES_1) == 0

    async def test_position_at_is_the_first_record_at_or_after_the_time(self, engine: LogUnderTest) -> None:
        async with engine.opened() as log:
            for value in numbered("v", 12):
                await put(log, ZONES_0, value)
                await engine.tick()
            await engine.settle(log)
            records = await read_all(log, ZONES_0)
            times = sorted({record.timestamp_ms for record in records})
            end = await log.end(ZONES_0)
            for time_ms in (times[0] - 1, *times, times[-1] + 1):
                first = next((record.offset for record in records if record.timestamp_ms >= time_ms), end)
                assert await log.position_at(ZONES_0, time_ms) == first

    # -- a damaged or replaced log

    async def test_a_position_beyond_the_end_is_refused(self, engine: LogUnderTest) -> None:
        async with engine.opened() as log:
            await put(log, ZONES_0, b"v")
            await self._refuses(engine, log, ZONES_0, await log.end(ZONES_0) + 1_000)

    async def test_a_truncated_log_is_refused(self, engine: LogUnderTest) -> None:
        async with engine.opened() as log:
            await put(log, ZONES_0, *numbered("v", 20))
            await engine.settle(log)
            records = await read_all(log, ZONES_0)
            position = await log.end(ZONES_0)
        await engine.truncate(ZONES_0, records[10].offset)
        async with engine.opened() as log:
            assert await read_all(log, ZONES_0) == records[:10]
            await self._refuses(engine, log, ZONES_0, position)

    async def test_a_recreated_log_is_refused(self, engine: LogUnderTest) -> None:
        async with engine.opened() as log:
            await put(log, ZONES_0, *numbered("v", 5))
            position = await log.end(ZONES_0)
        await engine.recreate()
        async with engine.opened() as log:
            assert await log.end(ZONES_0) == 0
            await self._refuses(engine, log, ZONES_0, position)

    async def test_a_running_reader_notices_a_recreated_log(self, engine: LogUnderTest) -> None:
        log = await engine.open()
        await put(log, ZONES_0, *numbered("v", 5))
        async with aclosing(log.read({ZONES_0: 0})) as batches:
            await self._until(batches, b"v-4")
            await engine.recreate()
            async with asyncio.timeout(engine.patience_s):
                with pytest.raises(LogMismatch):
                    await anext(batches)
        await log.close()

    async def test_another_partition_count_is_refused_with_both_numbers(self, engine: LogUnderTest) -> None:
        async with engine.opened() as log:
            await put(log, ZONES_0, b"v")
        other = engine.partition_count + 3
        with pytest.raises(
            LogMismatch, match=rf"{engine.partition_count}\b.*\b{other}|{other}\b.*\b{engine.partition_count}"
        ):
            await engine.open(partition_count=other)
        async with engine.opened() as log:
            assert first_values(await read_all(log, ZONES_0)) == [b"v"]

    async def test_expired_records_move_the_beginning_permanently(self, engine: LogUnderTest) -> None:
        async with engine.opened() as log:
            await put(log, ZONES_0, *numbered("v", 20))
            await engine.settle(log)
            records = await read_all(log, ZONES_0)
            await engine.expire(log, ZONES_0, records[12].offset)
            assert await log.begin(ZONES_0) == records[12].offset
            await self._refuses(engine, log, ZONES_0, records[11].offset)
        async with engine.opened() as log:
            assert await read_all(log, ZONES_0) == records[12:]
            await self._refuses(engine, log, ZONES_0, 0)
            await put(log, ZONES_0, b"after")
            assert (await read_all(log, ZONES_0))[-1].offset > records[-1].offset

    # -- helpers

    async def _until(self, batches: AsyncGenerator[Batch, None], value: bytes) -> list[bytes]:
        seen: list[bytes] = []
        async for _, records in batches:
            seen = list(dict.fromkeys([*seen, *first_values(records)]))
            if value in seen:
                break
        return seen

    async def _refuses(self, engine: LogUnderTest, log: EventLog, partition: Partition, position: int) -> None:
        async with asyncio.timeout(engine.patience_s), aclosing(log.read({partition: position})) as batches:
            with pytest.raises(LogMismatch, match=str(partition)):
                await anext(batches)
