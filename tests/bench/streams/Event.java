import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import java.util.zip.CRC32;

/**
 * A NodesJoined, read by hand: no object per field, and a node's labels stay the bytes that they are.
 *
 * A row of the state is issued_at_ms (8 bytes), address (4), length of the zone's name (1) and the name, length of the
 * id (1) and the id of the command, and the labels as Avro wrote them.
 */
final class Event {
    private static final int SCHEMA_ID = 3;
    private static final int HEADER_BYTES = 5;

    int count;
    long issuedAtMs;
    byte[] zone;

    private byte[] from;
    private int at;
    private byte[] commandId;
    private int[] names = new int[1000];
    private int[] nameLengths = new int[1000];
    private int[] labelsOf = new int[1000];
    private int[] labelSets = new int[1000];
    private int[] labelEnds = new int[1000];
    private int addresses;

    /** Whether these bytes are a NodesJoined with IPv4 addresses. */
    boolean read(byte[] value) {
        from = value;
        if (value.length < HEADER_BYTES || ByteBuffer.wrap(value, 1, 4).getInt() != SCHEMA_ID) {
            return false;
        }
        at = HEADER_BYTES;
        commandId = bytes();
        skip();
        skip();
        issuedAtMs = number();
        zone = bytes();
        readNames();
        skipNumbers();
        skipTexts();
        int length = (int) number();
        addresses = at;
        at += length;
        skip();
        readLabels();
        readLabelIndex();
        return true;
    }

    byte[] name(int item) {
        byte[] name = new byte[nameLengths[item]];
        System.arraycopy(from, names[item], name, 0, name.length);
        return name;
    }

    byte[] row(int item) {
        int set = labelsOf[item];
        int labelsLength = labelEnds[set] - labelSets[set];
        byte[] row = new byte[14 + zone.length + commandId.length + labelsLength];
        ByteBuffer out = ByteBuffer.wrap(row);
        out.putLong(issuedAtMs).put(from, addresses + 4 * item, 4);
        out.put((byte) zone.length).put(zone).put((byte) commandId.length).put(commandId);
        out.put(from, labelSets[set], labelsLength);
        return row;
    }

    /** A sum of these over all rows says whether two states hold the same nodes with the same fields. */
    static long digest(byte[] name, byte[] row) {
        ByteBuffer in = ByteBuffer.wrap(row, 8, row.length - 8);
        long address = in.getInt() & 0xffffffffL;
        byte[] zone = new byte[in.get()];
        in.get(zone);
        in.position(in.position() + 1 + in.get(in.position()));
        Event labels = new Event();
        labels.from = row;
        labels.at = in.position();
        String text = text(name) + "|" + text(zone) + "|" + address + "|" + labels.map();
        CRC32 sum = new CRC32();
        sum.update(text.getBytes(StandardCharsets.UTF_8));
        return sum.getValue();
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private String map() {
        Map<String, String> sorted = new TreeMap<>();
        for (long items = block(); items != 0; items = block()) {
            for (; items > 0; items--) {
                sorted.put(text(bytes()), text(bytes()));
            }
        }
        StringBuilder out = new StringBuilder();
        sorted.forEach((key, value) -> out.append(key).append('=').append(value).append(','));
        return out.toString();
    }

    private void readNames() {
        count = 0;
        for (long items = block(); items != 0; items = block()) {
            for (; items > 0; items--) {
                nameLengths[count] = (int) number();
                names[count] = at;
                at += nameLengths[count++];
            }
        }
    }

    private void readLabels() {
        int set = 0;
        for (long sets = block(); sets != 0; sets = block()) {
            for (; sets > 0; sets--) {
                labelSets[set] = at;
                for (long items = block(); items != 0; items = block()) {
                    for (; items > 0; items--) {
                        skip();
                        skip();
                    }
                }
                labelEnds[set++] = at;
            }
        }
    }

    private void readLabelIndex() {
        int item = 0;
        for (long items = block(); items != 0; items = block()) {
            for (; items > 0; items--) {
                labelsOf[item++] = (int) number();
            }
        }
    }

    private void skipNumbers() {
        for (long items = block(); items != 0; items = block()) {
            for (; items > 0; items--) {
                number();
            }
        }
    }

    private void skipTexts() {
        for (long items = block(); items != 0; items = block()) {
            for (; items > 0; items--) {
                skip();
            }
        }
    }

    /** How many items follow in a block of an array or a map; 0 at its end. */
    private long block() {
        long items = number();
        if (items < 0) {
            number(); // the length in bytes, which is for those who skip
            return -items;
        }
        return items;
    }

    private byte[] bytes() {
        byte[] found = new byte[(int) number()];
        System.arraycopy(from, at, found, 0, found.length);
        at += found.length;
        return found;
    }

    private void skip() {
        int length = (int) number();
        at += length;
    }

    private long number() {
        long value = 0;
        for (int shift = 0; ; shift += 7) {
            byte next = from[at++];
            value |= (long) (next & 0x7f) << shift;
            if (next >= 0) {
                return value >>> 1 ^ -(value & 1);
            }
        }
    }
}
