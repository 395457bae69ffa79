"""librdkafka as a peer of `run`: produce BOOTSTRAP TOPIC COUNT, or consume BOOTSTRAP TOPIC GROUP COUNT SECONDS."""

import sys
import time

from confluent_kafka import Consumer, KafkaException, Producer


def say(*words):
    print(*words, flush=True)


def serve(act):
    """A fatal error is raised as well as told to each record's callback."""
    try:
        act()
    except KafkaException:
        pass


def produce(bootstrap, topic, count):
    producer = Producer({
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "acks": "all",
        "linger.ms": 0,
        "delivery.timeout.ms": 30000,
        "request.timeout.ms": 5000,
        "socket.timeout.ms": 5000,
    })

    def delivered(error, message):
        value = message.value().decode()
        say("failed", value, error) if error else say("acked", value, message.offset())

    for number in range(int(count)):
        try:
            producer.produce(topic, value=f"v{number}", on_delivery=delivered)
        except KafkaException as error:
            # A fatal error: this producer sends nothing any more.
            say("failed", f"v{number}", error)
        serve(lambda: producer.poll(0))
        time.sleep(0.1)
    serve(lambda: producer.flush(40))


def consume(bootstrap, topic, group, count, seconds):
    consumer = Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
        "socket.timeout.ms": 5000,
        "fetch.wait.max.ms": 500,
        "check.crcs": True,
    })
    consumer.subscribe([topic])
    end = time.monotonic() + float(seconds)
    seen = set()
    while time.monotonic() < end and len(seen) < int(count):
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error():
            say("fault", message.error())
            continue
        seen.add(message.value())
        say("read", message.value().decode(), message.offset())
        try:
            consumer.commit(message=message, asynchronous=False)
        except Exception as error:
            say("fault", "commit:", error)
    consumer.close()


{"produce": produce, "consume": consume}[sys.argv[1]](*sys.argv[2:])
