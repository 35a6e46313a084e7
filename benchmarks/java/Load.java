import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.LongAdder;
import org.redisson.Redisson;
import org.redisson.api.RAtomicLong;
import org.redisson.api.RBucket;
import org.redisson.api.RLocalCachedMap;
import org.redisson.api.RMap;
import org.redisson.api.RScoredSortedSet;
import org.redisson.api.RSet;
import org.redisson.api.RedissonClient;
import org.redisson.api.options.LocalCachedMapOptions;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/**
 * Makes calls of Redisson in a loop, as grid.go does those of redlatch. Arguments: host:port, and how many bytes a value has.
 *
 * <p>Each line of the input is {@code CALL THREADS WINDOW_MS}; the answer is how many calls a second all threads made, after a quarter
 * of a window that does not count. The end of the input ends the process.
 */
public final class Load {
    /** How many calls are counted together where each takes less than counting it. */
    private static final int BATCH = 100;

    private interface Call {
        void run() throws Exception;
    }

    private final RedissonClient redisson;
    private final RMap<String, String> map;
    private final RLocalCachedMap<String, String> near;
    private final RSet<String> set;
    private final RScoredSortedSet<String> sorted;
    private final String payload;

    private Load(String address, int bytes) {
        Config config = new Config();
        config.setCodec(StringCodec.INSTANCE);
        config.useSingleServer().setAddress("redis://" + address);
        redisson = Redisson.create(config);
        map = redisson.getMap("map");
        near = redisson.getLocalCachedMap(LocalCachedMapOptions.name("near"));
        set = redisson.getSet("set");
        sorted = redisson.getScoredSortedSet("sorted");
        payload = "x".repeat(bytes);
    }

    public static void main(String[] args) throws Exception {
        Load load = new Load(args[0], Integer.parseInt(args[1]));
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            System.out.println(load.perSecond(words[0], Integer.parseInt(words[1]), Long.parseLong(words[2])));
        }
        Runtime.getRuntime().halt(0);
    }

    /** The call of a thread that has a key, an entry or a member of its own. */
    private Call call(String name, int thread) {
        String key = "own:" + thread;
        switch (name) {
            case "bucket.set": {
                RBucket<String> bucket = redisson.getBucket(key);
                return () -> bucket.set(payload);
            }
            case "bucket.get": {
                RBucket<String> bucket = redisson.getBucket(key);
                return () -> found(bucket.get() != null);
            }
            case "map.set":
                return () -> map.fastPut(key, payload);
            case "map.get":
                return () -> found(map.get(key) != null);
            case "atomic.add": {
                RAtomicLong number = redisson.getAtomicLong("number:" + key);
                return () -> number.addAndGet(1);
            }
            case "set.has":
                return () -> found(set.contains(key));
            case "sorted.add":
                return () -> sorted.add(1, key);
            case "sorted.score":
                return () -> found(sorted.getScore(key) != null);
            case "near.set":
                return () -> near.fastPut(key, payload);
            case "near.get":
                near.fastPut(key, payload);
                return () -> {
                    for (int i = 0; i < BATCH; i++) {
                        found(near.get(key) != null);
                    }
                };
            default:
                throw new IllegalArgumentException("no call " + name);
        }
    }

    private static void found(boolean ok) {
        if (!ok) {
            throw new IllegalStateException("nothing is there");
        }
    }

    private volatile boolean stop;

    private double perSecond(String name, int threads, long windowMs) throws Exception {
        LongAdder calls = new LongAdder();
        AtomicReference<Exception> failed = new AtomicReference<>();
        CountDownLatch ended = new CountDownLatch(threads);
        int weight = name.equals("near.get") ? BATCH : 1;
        stop = false;
        for (int i = 0; i < threads; i++) {
            Call call = call(name, i);
            new Thread(() -> {
                try {
                    while (!stop) {
                        call.run();
                        calls.add(weight);
                    }
                } catch (Exception e) {
                    failed.set(e);
                } finally {
                    ended.countDown();
                }
            }).start();
        }
        Thread.sleep(windowMs / 4);
        long before = calls.sum();
        long start = System.nanoTime();
        Thread.sleep(windowMs);
        long done = calls.sum() - before;
        double seconds = (System.nanoTime() - start) / 1e9;
        stop = true;
        ended.await();
        if (failed.get() != null) {
            throw failed.get();
        }
        return done / seconds;
    }
}
