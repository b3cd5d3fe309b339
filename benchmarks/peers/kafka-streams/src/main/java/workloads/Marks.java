package workloads;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** Times of events in this run, one JSON object per line, by the same clock as in the harness. */
public final class Marks {
    private final Path file;

    public Marks(Path file) {
        this.file = file;
    }

    public synchronized void put(String mark) {
        String line = "{\"mark\":\"" + mark + "\",\"at_ms\":" + System.currentTimeMillis() + "}\n";
        try {
            Files.writeString(file, line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
