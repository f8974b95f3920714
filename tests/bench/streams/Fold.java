import com.sun.management.OperatingSystemMXBean;
import java.io.File;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashSet;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/**
 * The peer of the zone fold in Kafka Streams: the newest record of each node, and how many nodes each zone has.
 *
 * It reads the records of the zones topic as they are, with a decoder written for NodesJoined by hand (a generic one
 * costs it a third), on one thread. `saved` keeps both stores in RocksDB with a changelog in Kafka, written through a
 * cache and committed once a second; `memory` keeps them in memory, without a changelog, which is the fastest it has.
 * It keeps no ids of commands, no outbox, no hash and no digest, so it does less than the fold.
 *
 * Arguments: brokers, topic, saved | memory, how many joins there are, folder, rounds. Each round begins with nothing,
 * in the same process, so the later ones run compiled code. A round is one line: seconds from the first record until
 * all is committed, CPU seconds, records and joins, nodes and zones, digest.
 */
public final class Fold {
    private static final String NODES = "nodes";
    private static final String ZONES = "zones";

    /** What a round has seen, by all its tasks. */
    private static final class Round {
        final long joins;
        final AtomicLong seen = new AtomicLong();
        final AtomicLong records = new AtomicLong();
        final CountDownLatch all = new CountDownLatch(1);
        final AtomicLong nodes = new AtomicLong();
        final AtomicLong digest = new AtomicLong();
        final Set<String> zones = new HashSet<>();
        long beganNs;
        long beganCpuNs;
        long endedNs;
        long endedCpuNs;

        Round(long joins) {
            this.joins = joins;
        }

        void add(long count) {
            if (records.getAndIncrement() == 0) {
                beganNs = System.nanoTime();
                beganCpuNs = cpuNs();
            }
            if (seen.addAndGet(count) >= joins) {
                all.countDown();
            }
        }

        /** The first of the tasks is closed, which comes after the commit of them all. */
        void end() {
            if (endedNs == 0) {
                endedNs = System.nanoTime();
                endedCpuNs = cpuNs();
            }
        }

        @Override
        public String toString() {
            double seconds = (endedNs - beganNs) / 1e9;
            double cpuSeconds = (endedCpuNs - beganCpuNs) / 1e9;
            return String.format(
                    "%.6f %.6f %d %d %d %d %d",
                    seconds, cpuSeconds, records.get(), seen.get(), nodes.get(), zones.size(), digest.get());
        }

        private static long cpuNs() {
            return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
        }
    }

    public static void main(String[] arguments) throws Exception {
        boolean saved = arguments[2].equals("saved");
        for (int number = 0; number < Integer.parseInt(arguments[5]); number++) {
            Round round = new Round(Long.parseLong(arguments[3]));
            String name = "streams-" + arguments[2] + "-" + number + "-" + System.nanoTime();
            KafkaStreams streams = new KafkaStreams(
                    topology(arguments[1], saved, round), settings(arguments[0], name, arguments[4]));
            streams.start();
            round.all.await();
            streams.close(Duration.ofSeconds(60));
            streams.cleanUp();
            System.out.println(round);
            System.gc();
        }
    }

    private static Properties settings(String brokers, String name, String folder) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, name);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, brokers);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, new File(folder, name).getPath());
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 1000);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 256L << 20);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, -1);
        settings.put(StreamsConfig.POLL_MS_CONFIG, 5); // how long it may take to notice that it is to close
        settings.put(StreamsConfig.BUFFERED_RECORDS_PER_PARTITION_CONFIG, 10000);
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        settings.put(StreamsConfig.consumerPrefix("max.poll.records"), 10000);
        settings.put(StreamsConfig.consumerPrefix("max.partition.fetch.bytes"), 4 << 20);
        settings.put(StreamsConfig.consumerPrefix("check.crcs"), false);
        settings.put(StreamsConfig.producerPrefix("linger.ms"), 100);
        settings.put(StreamsConfig.producerPrefix("batch.size"), 512 << 10);
        settings.put(StreamsConfig.producerPrefix("buffer.memory"), 128L << 20);
        return settings;
    }

    private static Topology topology(String topic, boolean saved, Round round) {
        Topology topology = new Topology();
        var bytes = Serdes.ByteArray();
        topology.addSource("events", bytes.deserializer(), bytes.deserializer(), topic);
        topology.addProcessor("fold", () -> new Folding(round), "events");
        for (String name : new String[] {NODES, ZONES}) {
            topology.addStateStore(store(name, saved), "fold");
        }
        return topology;
    }

    private static StoreBuilder<KeyValueStore<Bytes, byte[]>> store(String name, boolean saved) {
        KeyValueBytesStoreSupplier kind =
                saved ? Stores.persistentKeyValueStore(name) : Stores.inMemoryKeyValueStore(name);
        var builder = Stores.keyValueStoreBuilder(kind, Serdes.Bytes(), Serdes.ByteArray());
        return saved ? builder.withCachingEnabled().withLoggingEnabled(Map.of())
                : builder.withCachingDisabled().withLoggingDisabled();
    }

    private static final class Folding implements Processor<byte[], byte[], Void, Void> {
        private final Round round;
        private final Event event = new Event();
        private KeyValueStore<Bytes, byte[]> nodes;
        private KeyValueStore<Bytes, byte[]> zones;
        private ProcessorContext<Void, Void> context;

        Folding(Round round) {
            this.round = round;
        }

        @Override
        public void init(ProcessorContext<Void, Void> context) {
            this.context = context;
            nodes = context.getStateStore(NODES);
            zones = context.getStateStore(ZONES);
        }

        @Override
        public void process(Record<byte[], byte[]> record) {
            if (!event.read(record.value())) {
                round.add(0);
                return;
            }
            long newNodes = 0;
            for (int item = 0; item < event.count; item++) {
                Bytes name = Bytes.wrap(event.name(item));
                byte[] known = nodes.get(name);
                if (known == null) {
                    newNodes++;
                }
                if (known == null || ByteBuffer.wrap(known).getLong() <= event.issuedAtMs) {
                    nodes.put(name, event.row(item));
                }
            }
            if (newNodes > 0) {
                Bytes zone = Bytes.wrap(event.zone);
                byte[] before = zones.get(zone);
                long count = newNodes + (before == null ? 0 : ByteBuffer.wrap(before).getLong());
                zones.put(zone, ByteBuffer.allocate(8).putLong(count).array());
            }
            round.add(event.count);
            if (round.all.getCount() == 0) {
                context.commit();
            }
        }

        /** The stores are still open: what they hold is looked at here, when the time has been taken. */
        @Override
        public void close() {
            round.end();
            try (KeyValueIterator<Bytes, byte[]> rows = nodes.all()) {
                while (rows.hasNext()) {
                    var row = rows.next();
                    round.nodes.incrementAndGet();
                    round.digest.addAndGet(Event.digest(row.key.get(), row.value));
                }
            }
            try (KeyValueIterator<Bytes, byte[]> rows = zones.all()) {
                rows.forEachRemaining(row -> round.zones.add(new String(row.key.get(), StandardCharsets.UTF_8)));
            }
        }
    }
}
