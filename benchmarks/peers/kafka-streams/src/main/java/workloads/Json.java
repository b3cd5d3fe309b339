package workloads;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/** JSON for a class with public fields, which is Jackson's fastest way to use classes. */
final class Json {
    private Json() {}

    static <T> Serde<T> of(Class<T> type) {
        ObjectMapper mapper = new ObjectMapper();
        ObjectReader reader = mapper.readerFor(type);
        ObjectWriter writer = mapper.writerFor(type);
        return Serdes.serdeFrom(
            (topic, value) -> {
                try {
                    return value == null ? null : writer.writeValueAsBytes(value);
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            },
            (topic, data) -> {
                try {
                    return data == null ? null : reader.readValue(data);
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            });
    }
}
