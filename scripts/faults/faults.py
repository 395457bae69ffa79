"""Clients against the dev broker's faults: what was acknowledged, what is in the log, what was read. Called by `run`."""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import socket
import subprocess
import threading
import time

from confluent_kafka import Consumer, TopicPartition

HERE = pathlib.Path(__file__).parent
TOOL = os.environ["TOOL"]
RECORDS = 20
PATIENCE = 50


class Broker:
    """A dev broker of three nodes with one topic of one partition, and its control port."""

    def __init__(self):
        command = [TOOL, "--json", "dev-broker", "--nodes", "3", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        started = json.loads(self.process.stdout.readline())
        self.bootstrap = started["bootstrap"]
        host, port = started["control"].rsplit(":", 1)
        self.control = socket.create_connection((host, int(port)))
        self.answers = self.control.makefile()
        self.lock = threading.Lock()
        self.rules = []
        self.tell(act="create_topic", topic="t", partitions=1, replication_factor=3)

    def tell(self, **order):
        with self.lock:
            self.control.sendall(json.dumps(order).encode() + b"\n")
            answer = json.loads(self.answers.readline())
        if not answer["ok"]:
            raise RuntimeError(f"{order}: {answer['error']}")
        return answer

    def fault(self, api, effect, **more):
        self.rules.append(self.tell(act="fault", api=api, effect=effect, **more)["rule"])

    def met(self):
        """Whether every fault that was ordered met a request."""
        hits = [self.tell(act="withdraw", rule=rule)["hits"] for rule in self.rules]
        return all(hit is None or hit > 0 for hit in hits)

    def leader(self):
        return self.tell(act="partition", topic="t", partition=0)["leader"]

    def log(self):
        """The values in the log, in order."""
        self.tell(act="withdraw_all")
        end = self.tell(act="partition", topic="t", partition=0)["high_watermark"]
        reader = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "truth", "enable.auto.commit": False})
        reader.assign([TopicPartition("t", 0, 0)])
        values = []
        limit = time.monotonic() + 20
        while len(values) < end:
            message = reader.poll(1)
            if time.monotonic() > limit:
                raise RuntimeError("the log cannot be read")
            if message and not message.error():
                values.append(message.value().decode())
        reader.close()
        return values

    def end(self):
        self.process.terminate()
        self.process.wait()


# --- clients: each gives (kind, value, rest) as it goes ---------------------------------------


def lines(command, feed=None):
    process = subprocess.Popen(command, stdin=subprocess.PIPE if feed else subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=None if "FAULTS_DEBUG" in os.environ else subprocess.DEVNULL, text=True)
    if feed:
        threading.Thread(target=feed, args=(process.stdin,), daemon=True).start()
    killer = threading.Timer(PATIENCE + 15, process.kill)
    killer.start()
    try:
        yield from process.stdout
    finally:
        killer.cancel()
        process.kill()
        process.wait()


def spoken(command):
    for line in lines(command):
        kind, _, rest = line.rstrip("\n").partition(" ")
        value, _, rest = rest.partition(" ")
        yield kind, value, rest


class Peer:
    def __init__(self, name, command):
        self.name, self.command = name, command

    def produce(self, broker):
        return spoken([*self.command, "produce", broker.bootstrap, "t", str(RECORDS)])

    def consume(self, broker):
        return spoken([*self.command, "consume", broker.bootstrap, "t", "g", str(RECORDS), str(PATIENCE)])


class Ours:
    name = "kafka-harbor"

    def produce(self, broker, pace=0.1):
        def feed(stdin):
            for number in range(RECORDS):
                stdin.write(f"v{number}\n")
                stdin.flush()
                time.sleep(pace)
            stdin.close()

        command = [TOOL, "--json", "--bootstrap", broker.bootstrap, "--timeout", "30", "produce", "--topic", "t", "--linger-ms", "0", "--stdin"]
        number = 0
        for line in lines(command, feed):
            event = json.loads(line)
            if event["event"] in ("produced", "error"):
                yield ("acked" if event["event"] == "produced" else "failed"), f"v{number}", event.get("offset") or event.get("error", "")
                number += 1

    def consume(self, broker):
        command = [TOOL, "--json", "--bootstrap", broker.bootstrap, "consume", "--topic", "t", "--group", "g", "--session-ms", "6000",
                   "--for", str(PATIENCE * 1000), "--idle", "30000"]
        for line in lines(command):
            event = json.loads(line)
            if event["event"] == "record":
                yield "read", event["value"], event["offset"]


def peers():
    found = [Ours(), Peer("librdkafka", ["python3" if "VIRTUAL_ENV" in os.environ else os.sys.executable, str(HERE / "librdkafka.py")])]
    if "JAVA_PEER" in os.environ:
        found.append(Peer("Java", ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", os.environ["JAVA_PEER"], "Faults"]))
    else:
        print("faults: no Java client (scripts/interop/install java)")
    if "FRANZ_GO" in os.environ:
        found.append(Peer("franz-go", [os.environ["FRANZ_GO"]]))
    else:
        print("faults: no franz-go (needs Go)")
    if "KRAFKA" in os.environ:
        found.append(Peer("krafka", [os.environ["KRAFKA"]]))
    else:
        print("faults: no krafka (needs a C compiler)")
    return found


# --- faults: ordered before the client begins, or while it works ------------------------------

Fault = collections.namedtuple("Fault", "name before during at", defaults=(None, None, 1))


def crash_leader(broker):
    broker.tell(act="crash", node=broker.leader())


def move_leader(broker):
    broker.tell(act="move_leader", topic="t", partition=0, node=broker.leader() % 3 + 1)


def hide(broker):
    broker.tell(act="hide_topic", topic="t")
    time.sleep(3)
    broker.tell(act="show_topic", topic="t")


def move_coordinator(broker):
    now = broker.tell(act="coordinator", key="g")["node"]
    broker.tell(act="move_coordinator", key="g", node=now % 3 + 1)


def expire(broker):
    for member in broker.tell(act="members", group="g")["members"]:
        broker.tell(act="expire_member", group="g", member=member)


WRITING = [
    Fault("none"),
    Fault("applied, never answered", lambda b: b.fault("Produce", "drop_answer", skip=2)),
    Fault("applied, connection closed, three times", lambda b: b.fault("Produce", "close_after", skip=2, times=3)),
    Fault("applied, answer cut after 9 bytes", lambda b: b.fault("Produce", "cut", bytes=9, skip=2)),
    Fault("not applied, never answered", lambda b: b.fault("Produce", "silence", skip=2)),
    Fault("answered after 8 s, behind the request's timeout", lambda b: b.fault("Produce", "delay_answer", ms=8000, skip=2)),
    Fault("applied after 8 s, behind the request's timeout", lambda b: b.fault("Produce", "delay", ms=8000, skip=2)),
    Fault("NOT_LEADER_OR_FOLLOWER ten times", lambda b: b.fault("Produce", "fail", code="NOT_LEADER_OR_FOLLOWER", skip=2, times=10)),
    Fault("OUT_OF_ORDER_SEQUENCE_NUMBER once", lambda b: b.fault("Produce", "fail", code="OUT_OF_ORDER_SEQUENCE_NUMBER", skip=2)),
    Fault("UNKNOWN_SERVER_ERROR once", lambda b: b.fault("Produce", "fail", code="UNKNOWN_SERVER_ERROR", skip=2)),
    Fault("throttled for 2 s, three times", lambda b: b.fault("Produce", "throttle", ms=2000, skip=2, times=3)),
    Fault("InitProducerId never answered", lambda b: b.fault("InitProducerId", "silence")),
    Fault("producers forgotten", during=lambda b: b.tell(act="lose_producer_state", topic="t", partition=0)),
    Fault("leader moved", during=move_leader),
    Fault("leader crashed", during=crash_leader),
    Fault("topic unknown for 3 s", during=hide),
]

READING = [
    Fault("none"),
    Fault("Fetch never answered", lambda b: b.fault("Fetch", "silence")),
    Fault("Fetch answer cut after 90 bytes", lambda b: b.fault("Fetch", "cut", bytes=90)),
    Fault("NOT_LEADER_OR_FOLLOWER ten times", lambda b: b.fault("Fetch", "fail", code="NOT_LEADER_OR_FOLLOWER", times=10)),
    Fault("FENCED_LEADER_EPOCH once", lambda b: b.fault("Fetch", "fail", code="FENCED_LEADER_EPOCH")),
    Fault("throttled for 3 s", lambda b: b.fault("Fetch", "throttle", ms=3000)),
    Fault("committed position unstable, three times", lambda b: b.fault("OffsetFetch", "fail", code="UNSTABLE_OFFSET_COMMIT", topic="t", times=3)),
    Fault("JoinGroup: coordinator loading, three times", lambda b: b.fault("JoinGroup", "fail", code="COORDINATOR_LOAD_IN_PROGRESS", times=3)),
    Fault("commit refused, REBALANCE_IN_PROGRESS twice", lambda b: b.fault("OffsetCommit", "fail", code="REBALANCE_IN_PROGRESS", times=2)),
    Fault("commit applied, never answered", lambda b: b.fault("OffsetCommit", "drop_answer")),
    Fault("commit refused, UNKNOWN_MEMBER_ID", lambda b: b.fault("OffsetCommit", "fail", code="UNKNOWN_MEMBER_ID")),
    Fault("coordinator moved", during=move_coordinator, at=6),
    Fault("member expired", during=expire, at=6),
    Fault("leader moved", during=move_leader, at=6),
    Fault("leader crashed", during=crash_leader, at=6),
]


# --- one run ----------------------------------------------------------------------------------


def misfortune(broker, fault):
    if fault.before:
        fault.before(broker)
    if fault.during:
        def act():
            time.sleep(fault.at)
            try:
                fault.during(broker)
            except (OSError, ValueError):
                pass  # The run is over already, and its table says what came of it.

        threading.Thread(target=act, daemon=True).start()


def write(peer, fault):
    broker = Broker()
    try:
        misfortune(broker, fault)
        begun = time.monotonic()
        acked, failed = {}, set()
        for kind, value, rest in peer.produce(broker):
            if kind == "acked":
                acked[value] = rest
            elif kind == "failed":
                failed.add(value)
        seconds = time.monotonic() - begun
        if not broker.met():
            return "not met"
        return written(acked, failed, broker.log(), seconds)
    finally:
        broker.end()


def written(acked, failed, log, seconds):
    words = []
    lost = [value for value in acked if value not in log]
    repeated = len(log) - len(set(log))
    order = list(dict.fromkeys(log))
    if lost:
        words.append(f"**{len(lost)} lost**")
    if repeated:
        words.append(f"**{repeated} twice**")
    if order != sorted(order, key=lambda value: int(value[1:])):
        words.append("**reordered**")
    silent = RECORDS - len(acked) - len(failed)
    if failed:
        words.append(f"{len(failed)} refused" + (f", {len(failed & set(log))} of them written" if failed & set(log) else ""))
    if silent > 0:
        words.append(f"**{silent} without a verdict**")
    return f"{', '.join(words) or 'whole'} ({seconds:.0f} s)"


def read(peer, fault):
    broker = Broker()
    try:
        def fill():
            for _ in Ours().produce(broker, 0.8 if fault.during else 0.01):
                pass

        # What happens while it reads needs something to come while it does.
        writer = threading.Thread(target=fill, daemon=True)
        writer.start()
        if not fault.during:
            writer.join()
        misfortune(broker, fault)
        begun, done = time.monotonic(), None
        seen = []
        for kind, value, _ in peer.consume(broker):
            if kind == "read":
                seen.append(value)
                if len(set(seen)) == RECORDS:
                    done = done or time.monotonic()
                    if not fault.name.startswith("commit"):
                        break
        seconds = (done or time.monotonic()) - begun
        if not broker.met():
            return "not met"
    finally:
        broker.end()
    words = []
    missed = RECORDS - len(set(seen))
    again = len(seen) - len(set(seen))
    first = list(dict.fromkeys(seen))
    if missed:
        words.append(f"**{missed} not read**")
    if first != sorted(first, key=lambda value: int(value[1:])):
        words.append("**reordered**")
    if again:
        words.append(f"{again} again")
    return f"{', '.join(words) or 'whole'} ({seconds:.0f} s)"


def table(title, faults, run, clients):
    rows = [f"| {title} | {' | '.join(client.name for client in clients)} |", "| --- " * (len(clients) + 1) + "|"]
    with concurrent.futures.ThreadPoolExecutor(len(clients)) as pool:
        for fault in faults:
            def told(client):
                try:
                    return run(client, fault)
                except Exception as error:
                    return f"not run: {error}"

            cells = list(pool.map(told, clients))
            rows.append(f"| {fault.name} | {' | '.join(cells)} |")
            print(rows[-1], flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers")
    parser.add_argument("--only", default="")
    parser.add_argument("--out")
    args = parser.parse_args()
    clients = [peer for peer in peers() if not args.peers or peer.name in args.peers.split(",")]
    keep = lambda faults: [fault for fault in faults if args.only in fault.name]
    rows = table("written under", keep(WRITING), write, clients) + [""] + table("read under", keep(READING), read, clients)
    if args.out:
        pathlib.Path(args.out).write_text("\n".join(rows) + "\n")


main()
