import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.redisson.api.RAtomicDouble;
import org.redisson.api.RAtomicLong;
import org.redisson.api.RBucket;
import org.redisson.api.RLocalCachedMap;
import org.redisson.api.RMap;
import org.redisson.api.RMapCacheNative;
import org.redisson.api.RScoredSortedSet;
import org.redisson.api.RSet;
import org.redisson.api.RSetCache;
import org.redisson.api.RTransaction;
import org.redisson.api.RedissonClient;
import org.redisson.api.TransactionOptions;
import org.redisson.api.options.LocalCachedMapOptions;
import org.redisson.client.codec.Codec;
import org.redisson.client.codec.DoubleCodec;
import org.redisson.client.codec.LongCodec;
import org.redisson.client.codec.StringCodec;
import org.redisson.client.protocol.ScoredEntry;
import org.redisson.codec.CompositeCodec;
import org.redisson.codec.TypedJsonJacksonCodec;

/**
 * The commands about data objects: {@code OBJECT.METHOD CODEC NAME ARGUMENT...}. The codec is that of values: text, json
 * (of a {@link Peer.Price}), long or double; keys of maps are texts. A value is returned as its text, null as null, and
 * several joined by semicolons. {@code ''} stands for the empty text.
 */
final class Grid {
    private final RedissonClient redisson;
    private final Map<String, RLocalCachedMap<String, Object>> near = new ConcurrentHashMap<>(); // by codec and name

    Grid(RedissonClient redisson) {
        this.redisson = redisson;
    }

    String run(String[] words) throws Exception {
        int dot = words[2].indexOf('.');
        String method = words[2].substring(dot + 1);
        Command c = new Command(words[3], words[4], Arrays.asList(words).subList(5, words.length));
        switch (words[2].substring(0, dot)) {
            case "bucket":
                return text(bucket(method, c));
            case "long":
                return text(atomicLong(method, c));
            case "float":
                return text(atomicDouble(method, c));
            case "map":
                return text(map(method, c, redisson.getMap(c.name, c.mapCodec())));
            case "native":
                return text(mapCacheNative(method, c));
            case "near":
                return text(localCachedMap(method, c));
            case "set":
                return text(set(method, c));
            case "setcache":
                return text(setCache(method, c));
            case "sorted":
                return text(sortedSet(method, c));
            default:
                throw new IllegalArgumentException("no object " + words[2]);
        }
    }

    private static String text(Object value) {
        if (value instanceof Map) {
            return text(((Map<?, ?>) value).entrySet());
        }
        if (value instanceof Collection) {
            return ((Collection<?>) value).stream().map(Grid::text).collect(Collectors.joining(";"));
        }
        if (value instanceof Map.Entry) {
            Map.Entry<?, ?> entry = (Map.Entry<?, ?>) value;
            return entry.getKey() + "=" + entry.getValue();
        }
        if (value instanceof ScoredEntry) {
            ScoredEntry<?> entry = (ScoredEntry<?>) value;
            return entry.getValue() + "=" + entry.getScore();
        }
        return String.valueOf(value);
    }

    /** What is iterated over, in steps. */
    private static <E> List<E> all(Iterator<E> iterator) {
        List<E> list = new ArrayList<>();
        iterator.forEachRemaining(list::add);
        return list;
    }

    /** A codec, a name and arguments. */
    private static final class Command {
        final String codec;
        final String name;
        private final List<String> args;

        Command(String codec, String name, List<String> args) {
            this.codec = codec;
            this.name = name;
            this.args = args;
        }

        String text(int i) {
            return args.get(i).equals("''") ? "" : args.get(i);
        }

        long integer(int i) {
            return Long.parseLong(args.get(i));
        }

        double number(int i) {
            return Double.parseDouble(args.get(i));
        }

        Duration millis(int i) {
            return Duration.ofMillis(integer(i));
        }

        Object value(int i) {
            switch (codec) {
                case "json":
                    return Peer.Price.of(text(i));
                case "long":
                    return integer(i);
                case "double":
                    return number(i);
                default:
                    return text(i);
            }
        }

        List<Object> values() {
            List<Object> values = new ArrayList<>();
            for (int i = 0; i < args.size(); i++) {
                values.add(value(i));
            }
            return values;
        }

        Codec codec() {
            switch (codec) {
                case "json": // the class of values, then those of a map's keys and values
                    return new TypedJsonJacksonCodec(Peer.Price.class, String.class, Peer.Price.class);
                case "long":
                    return LongCodec.INSTANCE;
                case "double":
                    return DoubleCodec.INSTANCE;
                default:
                    return StringCodec.INSTANCE;
            }
        }

        /** The third codec is for replies that Redisson decodes as values, as that of a put with a time to live. */
        Codec mapCodec() {
            return codec() == StringCodec.INSTANCE ? StringCodec.INSTANCE : new CompositeCodec(StringCodec.INSTANCE, codec(), codec());
        }
    }

    private static IllegalArgumentException unknown(String method) {
        return new IllegalArgumentException("no method " + method);
    }

    private Object bucket(String method, Command c) {
        RBucket<Object> bucket = redisson.getBucket(c.name, c.codec());
        switch (method) {
            case "get":
                return bucket.get();
            case "set": // VALUE, and perhaps a time to live
                if (c.args.size() > 1) {
                    bucket.set(c.value(0), c.millis(1));
                } else {
                    bucket.set(c.value(0));
                }
                return "";
            case "setAndKeepTTL":
                bucket.setAndKeepTTL(c.value(0));
                return "";
            case "setIfAbsent":
                return bucket.setIfAbsent(c.value(0));
            case "setIfExists":
                return bucket.setIfExists(c.value(0));
            case "getAndSet":
                return bucket.getAndSet(c.value(0));
            case "getAndDelete":
                return bucket.getAndDelete();
            case "compareAndSet": // OLD NEW
                return bucket.compareAndSet(c.value(0), c.value(1));
            case "remainTimeToLive":
                return bucket.remainTimeToLive();
            default:
                throw unknown(method);
        }
    }

    private Object atomicLong(String method, Command c) {
        RAtomicLong number = redisson.getAtomicLong(c.name);
        switch (method) {
            case "get":
                return number.get();
            case "set":
                number.set(c.integer(0));
                return "";
            case "addAndGet":
                return number.addAndGet(c.integer(0));
            case "incrementAndGet":
                return number.incrementAndGet();
            case "getAndSet":
                return number.getAndSet(c.integer(0));
            case "compareAndSet":
                return number.compareAndSet(c.integer(0), c.integer(1));
            case "setIfGreater": // THAN VALUE
                return number.setIfGreater(c.integer(0), c.integer(1));
            default:
                throw unknown(method);
        }
    }

    private Object atomicDouble(String method, Command c) {
        RAtomicDouble number = redisson.getAtomicDouble(c.name);
        switch (method) {
            case "get":
                return number.get();
            case "set":
                number.set(c.number(0));
                return "";
            case "addAndGet":
                return number.addAndGet(c.number(0));
            case "getAndSet":
                return number.getAndSet(c.number(0));
            case "compareAndSet":
                return number.compareAndSet(c.number(0), c.number(1));
            default:
                throw unknown(method);
        }
    }

    private Object map(String method, Command c, RMap<String, Object> map) {
        switch (method) {
            case "get":
                return map.get(c.text(0));
            case "put":
                return map.put(c.text(0), c.value(1));
            case "fastPut":
                return map.fastPut(c.text(0), c.value(1));
            case "putIfAbsent":
                return map.putIfAbsent(c.text(0), c.value(1));
            case "fastPutIfAbsent":
                return map.fastPutIfAbsent(c.text(0), c.value(1));
            case "putIfExists":
                return map.putIfExists(c.text(0), c.value(1));
            case "replace": // KEY NEW, or KEY OLD NEW
                if (c.args.size() > 2) {
                    return map.replace(c.text(0), c.value(1), c.value(2));
                }
                return map.replace(c.text(0), c.value(1));
            case "remove": // KEY, or KEY OLD
                if (c.args.size() > 1) {
                    return map.remove(c.text(0), c.value(1));
                }
                return map.remove(c.text(0));
            case "fastRemove":
                return map.fastRemove(c.args.toArray(new String[0]));
            case "addAndGet":
                return map.addAndGet(c.text(0), (Number) c.value(1));
            case "containsKey":
                return map.containsKey(c.text(0));
            case "getAll":
                return map.getAll(new HashSet<>(c.args));
            case "all":
                return all(map.entrySet().iterator());
            case "size":
                return map.size();
            case "clear":
                map.clear();
                return "";
            default:
                throw unknown(method);
        }
    }

    private Object mapCacheNative(String method, Command c) {
        RMapCacheNative<String, Object> map = redisson.getMapCacheNative(c.name, c.mapCodec());
        switch (method) {
            case "putFor": // KEY VALUE MS
                return map.put(c.text(0), c.value(1), c.millis(2));
            case "fastPutFor":
                return map.fastPut(c.text(0), c.value(1), c.millis(2));
            case "remainTimeToLive":
                return map.remainTimeToLive(c.text(0));
            case "expireEntry":
                return map.expireEntry(c.text(0), c.millis(1));
            case "clearExpire":
                return map.clearExpire(c.text(0));
            default:
                return map(method, c, map);
        }
    }

    /** Codecs are those of maps, and update, which is text in a map that sends its values. */
    private Object localCachedMap(String method, Command c) throws Exception {
        RLocalCachedMap<String, Object> map = near.computeIfAbsent(c.codec + " " + c.name, unused -> redisson.getLocalCachedMap(
                LocalCachedMapOptions.<String, Object>name(c.name)
                        .codec(c.mapCodec())
                        .syncStrategy(c.codec.equals("update")
                                ? LocalCachedMapOptions.SyncStrategy.UPDATE : LocalCachedMapOptions.SyncStrategy.INVALIDATE)));
        switch (method) {
            case "open":
                return "";
            case "putAll": { // KEY VALUE...
                Map<String, Object> values = new HashMap<>();
                for (int i = 0; i < c.args.size(); i += 2) {
                    values.put(c.text(i), c.value(i + 1));
                }
                map.putAll(values);
                return "";
            }
            case "clearLocalCache": // of all clients; it waits for them
                map.clearLocalCache();
                return "";
            case "cached": // what it has of a key
                return map.getCachedMap().get(c.text(0));
            case "transaction": { // KEY VALUE...; commit() stops to listen to answers before it waits for them, until its time-out
                RTransaction transaction = redisson.createTransaction(TransactionOptions.defaults().timeout(20, TimeUnit.SECONDS));
                RMap<String, Object> changed = transaction.getLocalCachedMap(map);
                for (int i = 0; i < c.args.size(); i += 2) {
                    changed.fastPut(c.text(i), c.value(i + 1));
                }
                transaction.commitAsync().get();
                return "";
            }
            default:
                return map(method, c, map);
        }
    }

    private Object set(String method, Command c) {
        RSet<Object> set = redisson.getSet(c.name, c.codec());
        switch (method) {
            case "add":
                return set.add(c.value(0));
            case "addAll":
                return set.addAllCounted(c.values());
            case "remove":
                return set.remove(c.value(0));
            case "contains":
                return set.contains(c.value(0));
            case "removeRandom":
                return set.removeRandom((int) c.integer(0));
            case "random":
                return set.random((int) c.integer(0));
            case "move": // OTHER VALUE
                return set.move(c.text(0), c.value(1));
            case "all":
                return all(set.iterator());
            case "size":
                return set.size();
            default:
                throw unknown(method);
        }
    }

    private Object setCache(String method, Command c) {
        RSetCache<Object> set = redisson.getSetCache(c.name, c.codec());
        switch (method) {
            case "add": // VALUE, and perhaps a time to live
                return c.args.size() > 1 ? set.add(c.value(0), c.integer(1), TimeUnit.MILLISECONDS) : set.add(c.value(0));
            case "remove":
                return set.remove(c.value(0));
            case "contains":
                return set.contains(c.value(0));
            case "all":
                return all(set.iterator());
            case "size":
                return set.size();
            default:
                throw unknown(method);
        }
    }

    private Object sortedSet(String method, Command c) throws InterruptedException {
        RScoredSortedSet<Object> set = redisson.getScoredSortedSet(c.name, c.codec());
        switch (method) {
            case "add": // VALUE SCORE
                return set.add(c.number(1), c.value(0));
            case "addIfAbsent":
                return set.addIfAbsent(c.number(1), c.value(0));
            case "addIfGreater":
                return set.addIfGreater(c.number(1), c.value(0));
            case "addIfLess":
                return set.addIfLess(c.number(1), c.value(0));
            case "addScore": // VALUE DELTA
                return set.addScore(c.value(0), c.number(1));
            case "getScore":
                return set.getScore(c.value(0));
            case "rank":
                return set.rank(c.value(0));
            case "revRank":
                return set.revRank(c.value(0));
            case "remove":
                return set.remove(c.value(0));
            case "pollFirst":
                return set.pollFirst();
            case "pollLast":
                return set.pollLast();
            case "pollFirstEntries": // N
                return set.pollFirstEntries((int) c.integer(0));
            case "takeFirst":
                return set.takeFirst();
            case "entryRange": // of ranks
                return set.entryRange((int) c.integer(0), (int) c.integer(1));
            case "entryRangeReversed":
                return set.entryRangeReversed((int) c.integer(0), (int) c.integer(1));
            case "valueRange": // of scores
                return set.valueRange(c.number(0), true, c.number(1), true);
            case "count":
                return set.count(c.number(0), true, c.number(1), true);
            case "all":
                return all(set.entryIterator());
            default:
                throw unknown(method);
        }
    }
}
