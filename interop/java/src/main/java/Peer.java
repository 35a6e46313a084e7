import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RBucket;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisTimeoutException;
import org.redisson.client.codec.Codec;
import org.redisson.client.codec.StringCodec;
import org.redisson.codec.TypedJsonJacksonCodec;
import org.redisson.config.ClusterServersConfig;
import org.redisson.config.Config;
import org.redisson.config.ShardedSubscriptionMode;

/**
 * Does with Redisson what it is told, one command a line: {@code ID THREAD COMMAND ARGUMENT...}. It answers each with
 * {@code ID ok VALUE} or {@code ID error MESSAGE}, in the order in which they are done. Commands of one thread name run
 * on one thread, one after the other. The end of the input ends the process.
 *
 * <p>Arguments: {@code single|cluster}, {@code lockWatchdogTimeout} in ms, {@code fairLockWaitTimeout} in ms, the
 * {@code shardedSubscriptionMode} of clusters, and addresses, host:port. For {@code single} each address is a server of
 * its own, the first one with all objects but RedLocks.
 */
public final class Peer {
    private final String[] args;
    private final List<RedissonClient> clients;
    private final Grid grid;
    private final Map<String, RedissonClient> fair = new ConcurrentHashMap<>();
    private final Map<String, Worker> workers = new ConcurrentHashMap<>();
    private final Map<String, BlockingQueue<String>> received = new ConcurrentHashMap<>(); // by kind and name
    private final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    private Peer(String[] args) {
        this.args = args;
        this.clients = connect(args);
        this.grid = new Grid(redisson());
    }

    public static void main(String[] args) throws Exception {
        Peer peer = new Peer(args);
        peer.say("0 ok ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            peer.workers.computeIfAbsent(words[1], name -> peer.new Worker(name)).submit(words);
        }
        Runtime.getRuntime().halt(0); // Locks stay as they are: their leases end.
    }

    private static List<RedissonClient> connect(String[] args) {
        List<RedissonClient> clients = new ArrayList<>();
        if (args[0].equals("cluster")) {
            Config config = config(args);
            ClusterServersConfig cluster = config.useClusterServers()
                    .setShardedSubscriptionMode(ShardedSubscriptionMode.valueOf(args[3]))
                    .setMasterConnectionMinimumIdleSize(1)
                    .setSlaveConnectionMinimumIdleSize(1);
            for (int i = 4; i < args.length; i++) {
                cluster.addNodeAddress("redis://" + args[i]);
            }
            clients.add(Redisson.create(config));
            return clients;
        }
        for (int i = 4; i < args.length; i++) {
            Config config = config(args);
            config.useSingleServer().setAddress("redis://" + args[i]).setConnectionMinimumIdleSize(1);
            clients.add(Redisson.create(config));
        }
        return clients;
    }

    private static Config config(String[] args) {
        Config config = new Config();
        config.setCodec(StringCodec.INSTANCE);
        config.setThreads(4);
        config.setNettyThreads(4);
        config.setLockWatchdogTimeout(Long.parseLong(args[1]));
        config.setFairLockWaitTimeout(Long.parseLong(args[2]));
        return config;
    }

    private synchronized void say(String line) {
        out.println(line);
    }

    private RedissonClient redisson() {
        return clients.get(0);
    }

    /** A client with this {@code fairLockWaitTimeout}, which differs in nothing else. */
    private RedissonClient fair(String timeout) {
        return fair.computeIfAbsent(timeout, unused -> {
            String[] own = args.clone();
            own[2] = timeout;
            return connect(own).get(0);
        });
    }

    /** A lock by its kind, fair@MS with another {@code fairLockWaitTimeout}. The names of a multi-lock's parts are joined by commas. */
    private RLock lock(String kind, String name) {
        switch (kind) {
            case "plain":
                return redisson().getLock(name);
            case "fenced":
                return redisson().getFencedLock(name);
            case "fair":
                return redisson().getFairLock(name);
            case "read":
                return redisson().getReadWriteLock(name).readLock();
            case "write":
                return redisson().getReadWriteLock(name).writeLock();
            case "multi": {
                List<RLock> parts = new ArrayList<>();
                for (String part : name.split(",")) {
                    parts.add(redisson().getLock(part));
                }
                return redisson().getMultiLock(parts.toArray(new RLock[0]));
            }
            case "red": {
                List<RLock> parts = new ArrayList<>();
                for (RedissonClient client : clients) {
                    parts.add(client.getLock(name));
                }
                return redisson().getRedLock(parts.toArray(new RLock[0]));
            }
            default:
                if (kind.startsWith("fair@")) {
                    return fair(kind.substring("fair@".length())).getFairLock(name);
                }
                throw new IllegalArgumentException("no kind " + kind);
        }
    }

    /** A value with fields. Its text has them separated by a comma. */
    public static final class Price {
        public String name;
        public long cents;

        static Price of(String text) {
            Price price = new Price();
            price.name = text.substring(0, text.indexOf(','));
            price.cents = Long.parseLong(text.substring(text.indexOf(',') + 1));
            return price;
        }

        @Override
        public String toString() {
            return name + "," + cents;
        }
    }

    /** A named thread, and the permits that it has. */
    private final class Worker {
        private final ExecutorService thread;
        private final Map<String, String> permits = new HashMap<>();
        private volatile Thread running;
        private volatile String[] current = {};

        Worker(String name) {
            thread = Executors.newSingleThreadExecutor(work -> {
                Thread t = new Thread(work, name);
                t.setDaemon(true);
                running = t;
                return t;
            });
        }

        void submit(String[] words) {
            thread.execute(() -> {
                current = words;
                try {
                    say(words[0] + " ok " + run(words));
                } catch (Throwable e) {
                    say(words[0] + " error " + e.toString().replace('\n', ' '));
                }
            });
        }

        /** Whether this thread waits for a message about the object. */
        private boolean waits(String kind, String name) {
            String[] words = current;
            Thread thread = running;
            if (thread == null || words.length < 5 || !words[3].equals(kind) || !words[4].equals(name)) {
                return false;
            }
            boolean parked = thread.getState() == Thread.State.WAITING || thread.getState() == Thread.State.TIMED_WAITING;
            return parked && Arrays.stream(thread.getStackTrace())
                    .anyMatch(frame -> frame.getClassName().equals(Semaphore.class.getName()));
        }

        private Object run(String[] words) throws Exception {
            String command = words[2];
            String kind = words.length > 3 ? words[3] : "";
            String name = words.length > 4 ? words[4] : "";
            switch (command) {
                case "lock": // KIND NAME LEASE, which is -1 for the watchdog's
                    return acquire(kind, name, Long.parseLong(words[5]));
                case "try": // KIND NAME WAIT LEASE
                    return tryAcquire(kind, name, Long.parseLong(words[5]), Long.parseLong(words[6]));
                case "unlock": // KIND NAME
                    release(kind, name);
                    return "";
                case "force":
                    return lock(kind, name).forceUnlock();
                case "waits": // KIND NAME: whether another thread waits for it
                    return workers.values().stream().anyMatch(worker -> worker.waits(kind, name));
                case "held":
                    return lock(kind, name).isHeldByCurrentThread();
                case "turn": // KIND NAME LIST VALUE: notes in a list that it had the lock
                    acquire(kind, name, -1);
                    redisson().getList(words[5]).add(words[6]);
                    release(kind, name);
                    return "";
                case "add": // KIND NAME COUNTER TIMES: reads and writes, which only exclusion keeps right
                    return add(kind, name, words[5], Integer.parseInt(words[6]));
                case "watch": // KIND NAME COUNTER TIMES: reads twice what nobody may write meanwhile
                    return watch(kind, name, words[5], Integer.parseInt(words[6]));
                case "set": // KIND NAME N
                    return set(kind, name, Integer.parseInt(words[5]));
                case "available":
                    return kind.equals("permit")
                            ? redisson().getPermitExpirableSemaphore(name).availablePermits()
                            : redisson().getSemaphore(name).availablePermits();
                case "releaseid": // permit NAME ID
                    redisson().getPermitExpirableSemaphore(name).release(words[5]);
                    return "";
                case "permitid": // permit NAME: the id that this thread has
                    return permits.get(name);
                case "acquiren": // semaphore NAME N
                    redisson().getSemaphore(name).acquire(Integer.parseInt(words[5]));
                    return "";
                case "releasen": // semaphore NAME N
                    redisson().getSemaphore(name).release(Integer.parseInt(words[5]));
                    return "";
                case "countdown": // latch NAME
                    redisson().getCountDownLatch(name).countDown();
                    return "";
                case "count":
                    return redisson().getCountDownLatch(name).getCount();
                case "await":
                    redisson().getCountDownLatch(name).await();
                    return "";
                case "delete":
                    return redisson().getCountDownLatch(name).delete();
                case "subscribe": // text, json or pattern, and NAME: returns when that is confirmed
                    return subscribe(kind, name);
                case "publish": // text or json, NAME VALUE
                    return redisson().getTopic(name, codec(kind)).publish(kind.equals("json") ? Price.of(words[5]) : words[5]);
                case "received": // KIND NAME: the next value, after its topic for a pattern
                    return received.get(kind + " " + name).poll(10, TimeUnit.SECONDS);
                default:
                    if (command.contains(".")) {
                        return grid.run(words);
                    }
                    throw new IllegalArgumentException("no command " + command);
            }
        }

        private Object subscribe(String kind, String name) {
            BlockingQueue<String> values = new LinkedBlockingQueue<>();
            received.put(kind + " " + name, values);
            switch (kind) {
                case "json":
                    return redisson().getTopic(name, codec(kind)).addListener(Price.class, (topic, price) -> values.add(price.toString()));
                case "pattern":
                    return redisson().getPatternTopic(name, codec(kind))
                            .addListener(String.class, (pattern, topic, value) -> values.add(topic + "=" + value));
                default:
                    return redisson().getTopic(name, codec(kind)).addListener(String.class, (topic, value) -> values.add(value));
            }
        }

        private Codec codec(String kind) {
            return kind.equals("json") ? new TypedJsonJacksonCodec(Price.class) : StringCodec.INSTANCE;
        }

        private Object acquire(String kind, String name, long lease) throws InterruptedException {
            switch (kind) {
                case "semaphore":
                    redisson().getSemaphore(name).acquire();
                    return "";
                case "permit": {
                    RPermitExpirableSemaphore permit = redisson().getPermitExpirableSemaphore(name);
                    String id = lease < 0 ? permit.acquire() : permit.acquire(lease, TimeUnit.MILLISECONDS);
                    permits.put(name, id);
                    return id;
                }
                case "fenced":
                    if (lease < 0) {
                        return ((RFencedLock) lock(kind, name)).lockAndGetToken();
                    }
                    // fall through
                default:
                    lock(kind, name).lock(lease, TimeUnit.MILLISECONDS);
                    return "";
            }
        }

        private boolean tryAcquire(String kind, String name, long wait, long lease) throws InterruptedException {
            switch (kind) {
                case "semaphore":
                    return redisson().getSemaphore(name).tryAcquire(1, Duration.ofMillis(wait));
                case "permit": {
                    RPermitExpirableSemaphore permit = redisson().getPermitExpirableSemaphore(name);
                    String id = permit.tryAcquire(wait, lease, TimeUnit.MILLISECONDS);
                    if (id != null) {
                        permits.put(name, id);
                    }
                    return id != null;
                }
                default:
                    RLock lock = lock(kind, name);
                    if (wait == 0 && lease < 0) {
                        return lock.tryLock();
                    }
                    return lock.tryLock(wait, lease, TimeUnit.MILLISECONDS);
            }
        }

        private void release(String kind, String name) {
            switch (kind) {
                case "semaphore":
                    redisson().getSemaphore(name).release();
                    return;
                case "permit":
                    redisson().getPermitExpirableSemaphore(name).release(permits.remove(name));
                    return;
                default:
                    lock(kind, name).unlock();
            }
        }

        private boolean set(String kind, String name, int n) {
            switch (kind) {
                case "semaphore":
                    return redisson().getSemaphore(name).trySetPermits(n);
                case "permit":
                    return redisson().getPermitExpirableSemaphore(name).trySetPermits(n);
                case "latch":
                    return redisson().getCountDownLatch(name).trySetCount(n);
                default:
                    throw new IllegalArgumentException("no kind " + kind);
            }
        }

        private long add(String kind, String name, String counter, int times) throws InterruptedException {
            RBucket<String> bucket = redisson().getBucket(counter);
            long longest = 0;
            for (int i = 0; i < times; i++) {
                long asked = System.nanoTime();
                for (boolean acquired = false; !acquired; ) {
                    try {
                        acquire(kind, name, kind.equals("permit") ? 30_000 : -1);
                        acquired = true;
                    } catch (RedisTimeoutException e) { // Redisson's own limit on subscriptions, before it asks for the lock again
                        if (!e.getMessage().startsWith("Unable to acquire subscription lock")) {
                            throw e;
                        }
                    }
                }
                longest = Math.max(longest, System.nanoTime() - asked);
                try {
                    String value = bucket.get();
                    long n = value == null ? 0 : Long.parseLong(value);
                    bucket.set(Long.toString(n + 1));
                } finally {
                    release(kind, name);
                }
            }
            redisson().getList(counter + "-waits").add(Long.toString(longest / 1_000_000));
            return times;
        }

        private long watch(String kind, String name, String counter, int times) throws InterruptedException {
            RBucket<String> bucket = redisson().getBucket(counter);
            for (int i = 0; i < times; i++) {
                acquire(kind, name, -1);
                try {
                    String before = bucket.get();
                    if (!Objects.equals(before, bucket.get())) {
                        throw new IllegalStateException("changed from " + before);
                    }
                } finally {
                    release(kind, name);
                }
            }
            return times;
        }
    }
}
