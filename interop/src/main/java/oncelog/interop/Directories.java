package oncelog.interop;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.List;
import java.util.stream.Stream;

/** Listing, copying and removing partition directories. */
final class Directories {
    private static final ByteBuffer CHUNK = ByteBuffer.allocateDirect(64 << 10);

    private Directories() {
    }

    /** The regular files of a directory in the order of their names. */
    static List<Path> files(Path dir) throws IOException {
        try (Stream<Path> all = Files.list(dir)) {
            return all.filter(Files::isRegularFile).sorted().toList();
        }
    }

    /** Copies the regular files of a directory with their times of modification, which Kafka looks at. */
    static void copy(Path from, Path to) throws IOException {
        Files.createDirectories(to);
        for (Path f : files(from)) {
            copyFile(f, to.resolve(f.getFileName()));
        }
    }

    /** Leaves holes where the source has zeros: preallocated indexes are 10 MiB of them. */
    private static void copyFile(Path from, Path to) throws IOException {
        try (FileChannel in = FileChannel.open(from);
             FileChannel out = FileChannel.open(to, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
            long pos = 0;
            boolean hole = false;
            for (CHUNK.clear(); in.read(CHUNK) > 0; CHUNK.clear()) {
                CHUNK.flip();
                int n = CHUNK.remaining();
                hole = allZero(CHUNK);
                if (!hole) {
                    out.write(CHUNK, pos);
                }
                pos += n;
            }
            if (hole) {
                out.write(ByteBuffer.allocate(1), pos - 1);
            }
        }
        Files.setLastModifiedTime(to, Files.getLastModifiedTime(from));
    }

    private static boolean allZero(ByteBuffer b) {
        int i = b.position();
        for (; i + 8 <= b.limit(); i += 8) {
            if (b.getLong(i) != 0) {
                return false;
            }
        }
        for (; i < b.limit(); i++) {
            if (b.get(i) != 0) {
                return false;
            }
        }
        return true;
    }

    static void remove(Path root) throws IOException {
        if (!Files.exists(root)) {
            return;
        }
        Files.walkFileTree(root, new SimpleFileVisitor<>() {
            @Override
            public FileVisitResult visitFile(Path file, BasicFileAttributes attributes) throws IOException {
                Files.delete(file);
                return FileVisitResult.CONTINUE;
            }

            @Override
            public FileVisitResult postVisitDirectory(Path dir, IOException failed) throws IOException {
                Files.delete(dir);
                return FileVisitResult.CONTINUE;
            }
        });
    }
}
