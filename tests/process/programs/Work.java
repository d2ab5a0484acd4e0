import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyPairGenerator;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.zip.CRC32;
import java.util.zip.Deflater;
import java.util.zip.GZIPOutputStream;
import java.util.zip.Inflater;

/**
 * Makes the JVM call malloc: direct buffers, zlib, threads, loaded and compiled classes, garbage. Prints digests, the
 * same in every run.
 */
public class Work {
    static void say(String name, Object value) throws Exception {
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(value.toString().getBytes(StandardCharsets.UTF_8));
        System.out.printf("%s %s%n", name, java.util.HexFormat.of().formatHex(digest, 0, 8));
    }

    /** A direct buffer. At the limit it waits for the collector, which a busy machine may delay. */
    static ByteBuffer allocate(int size) throws InterruptedException {
        for (int i = 0; ; i++) {
            try {
                return ByteBuffer.allocateDirect(size);
            } catch (OutOfMemoryError error) {
                if (i == 600)
                    throw error;
                Thread.sleep(100);
            }
        }
    }

    /** Direct buffers of all sizes with different lifetimes. malloc gives their memory. */
    static long directBuffers(int seed) throws InterruptedException {
        Random chance = new Random(seed);
        ByteBuffer[] live = new ByteBuffer[64];
        long sum = 0;
        for (int i = 0; i < 3000; i++) {
            int at = chance.nextInt(live.length);
            if (live[at] != null)
                sum += live[at].get(live[at].capacity() - 1) + live[at].get(0);
            live[at] = allocate(1 + chance.nextInt(i % 50 == 0 ? 400_000 : 6000));
            for (int j = 0; j < live[at].capacity(); j += 512)
                live[at].put(j, (byte) (i + j));
            live[at].put(live[at].capacity() - 1, (byte) i);
        }
        return sum;
    }

    /** Deflaters and inflaters, whose state zlib allocates. Some are ended, the others left to the cleaner. */
    static long compression(int seed) throws Exception {
        Random chance = new Random(seed);
        CRC32 crc = new CRC32();
        for (int i = 0; i < 60; i++) {
            byte[] data = new byte[2000 + chance.nextInt(20000)];
            for (int j = 0; j < data.length; j++)
                data[j] = (byte) (chance.nextInt(4) * j % 61);
            Deflater deflater = new Deflater(1 + i % 9);
            deflater.setInput(data);
            deflater.finish();
            byte[] packed = new byte[data.length + 100];
            int length = deflater.deflate(packed);
            Inflater inflater = new Inflater();
            inflater.setInput(packed, 0, length);
            byte[] again = new byte[data.length];
            inflater.inflate(again);
            if (!java.util.Arrays.equals(data, again))
                throw new AssertionError("inflated to something else");
            if (i % 3 != 0) {
                deflater.end();
                inflater.end();
            }
            crc.update(packed, 0, length);
        }
        return crc.getValue();
    }

    static long garbage(int seed) {
        Random chance = new Random(seed);
        Map<String, List<byte[]>> map = new HashMap<>();
        long sum = 0;
        for (int i = 0; i < 60_000; i++) {
            String name = "key" + chance.nextInt(500);
            map.computeIfAbsent(name, key -> new ArrayList<>()).add(new byte[chance.nextInt(200)]);
            if (i % 20 == 0) {
                List<byte[]> gone = map.remove("key" + chance.nextInt(500));
                sum += gone == null ? 1 : gone.stream().mapToInt(bytes -> bytes.length).sum();
            }
        }
        return sum;
    }

    public interface Greeter {
        String greet(int n);
    }

    /** Proxies of many class loaders: metaspace, and the VM's memory for each class. */
    static String classes(int count) {
        StringBuilder said = new StringBuilder();
        for (int i = 0; i < count; i++) {
            int n = i;
            ClassLoader loader = new ClassLoader(Work.class.getClassLoader()) {};
            Greeter greeter = (Greeter) java.lang.reflect.Proxy.newProxyInstance(
                loader, new Class<?>[] {Greeter.class}, (self, method, arguments) -> "hello " + n + arguments[0]);
            said.append(greeter.greet(i));
        }
        return said.toString();
    }

    static String child() throws Exception {
        Process process = new ProcessBuilder("sh", "-c", "cat; echo end").start();
        try (var out = process.getOutputStream()) {
            out.write("x".repeat(50_000).getBytes());
        }
        String said = new String(process.getInputStream().readAllBytes());
        return said.length() + " " + process.waitFor();
    }

    public static void main(String[] arguments) throws Exception {
        int rounds = Integer.parseInt(arguments[0]);
        for (int round = 0; round < rounds; round++) {
            ExecutorService pool = Executors.newFixedThreadPool(6);
            List<Callable<Long>> jobs = new ArrayList<>();
            for (int i = 0; i < 6; i++) {
                int seed = 10 * round + i;
                jobs.add(() -> directBuffers(seed));
                jobs.add(() -> compression(seed));
                jobs.add(() -> garbage(seed));
            }
            List<Long> results = new ArrayList<>();
            List<Future<Long>> futures = pool.invokeAll(jobs);
            pool.shutdown();
            for (Future<Long> future : futures)
                results.add(future.get());
            say("jobs", results);

            List<Thread> threads = new ArrayList<>();
            long[] sums = new long[300];
            for (int i = 0; i < sums.length; i++) {
                int n = i;
                threads.add(new Thread(() -> sums[n] = ByteBuffer.allocateDirect(100 + n).putLong(0, n).getLong(0)));
            }
            for (Thread thread : threads)
                thread.start();
            for (Thread thread : threads)
                thread.join();
            say("threads", java.util.Arrays.toString(sums));

            say("classes", classes(60));
            say("child", child());
            Path file = Files.createTempFile("work", ".gz");
            try (var out = new GZIPOutputStream(Files.newOutputStream(file))) {
                for (int i = 0; i < 20_000; i++)
                    out.write(("line " + i + "\n").getBytes());
            }
            say("file", Files.size(file));
            Files.delete(file);
            var keys = KeyPairGenerator.getInstance("RSA");
            keys.initialize(1024);
            say("keys", keys.generateKeyPair().getPublic().getAlgorithm());
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            new java.io.ObjectOutputStream(out).writeObject(new ArrayList<>(List.of("a", "b", Map.of(1, 2))));
            say("written", out.size());
            System.gc();
        }
        System.out.println("done");
    }
}
