// Kafka's Java client as a peer of `run`: produce BOOTSTRAP TOPIC COUNT, or consume BOOTSTRAP TOPIC GROUP COUNT SECONDS.

import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public final class Faults {
    public static void main(String[] args) throws Exception {
        if (args[0].equals("produce")) {
            produce(args[1], args[2], Integer.parseInt(args[3]));
        } else {
            consume(args[1], args[2], args[3], Integer.parseInt(args[4]), Integer.parseInt(args[5]));
        }
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static void produce(String bootstrap, String topic, int count) throws Exception {
        Properties set = new Properties();
        set.put("bootstrap.servers", bootstrap);
        set.put("enable.idempotence", "true");
        set.put("acks", "all");
        set.put("linger.ms", "0");
        set.put("delivery.timeout.ms", "30000");
        set.put("request.timeout.ms", "5000");
        var producer = new KafkaProducer<>(set, new StringSerializer(), new StringSerializer());
        for (int number = 0; number < count; number++) {
            String value = "v" + number;
            producer.send(new ProducerRecord<>(topic, value), (written, error) ->
                say(error == null ? "acked " + value + " " + written.offset() : "failed " + value + " " + error));
            Thread.sleep(100);
        }
        producer.flush();
        producer.close(Duration.ofSeconds(5));
    }

    private static void consume(String bootstrap, String topic, String group, int count, int seconds) {
        Properties set = new Properties();
        set.put("bootstrap.servers", bootstrap);
        set.put("group.id", group);
        set.put("auto.offset.reset", "earliest");
        set.put("enable.auto.commit", "false");
        set.put("session.timeout.ms", "6000");
        set.put("heartbeat.interval.ms", "2000");
        set.put("request.timeout.ms", "5000");
        set.put("default.api.timeout.ms", "10000");
        try (var consumer = new KafkaConsumer<>(set, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            long end = System.nanoTime() + seconds * 1_000_000_000L;
            Set<String> seen = new HashSet<>();
            while (System.nanoTime() < end && seen.size() < count) {
                try {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                        seen.add(record.value());
                        say("read " + record.value() + " " + record.offset());
                        consumer.commitSync(Map.of(new TopicPartition(record.topic(), record.partition()),
                            new OffsetAndMetadata(record.offset() + 1)));
                    }
                } catch (RuntimeException error) {
                    say("fault " + error);
                }
            }
        }
    }
}
