package oncelog.interop;

import java.lang.reflect.Field;
import java.lang.reflect.Method;

/** Looks at what Kafka's classes keep to themselves. Every use names what it reads and why there is no other way. */
final class Reflected {
    private Reflected() {
    }

    @SuppressWarnings("unchecked")
    static <T> T get(Object owner, String field) throws ReflectiveOperationException {
        Field f = owner.getClass().getDeclaredField(field);
        f.setAccessible(true);
        return (T) f.get(owner);
    }

    @SuppressWarnings("unchecked")
    static <T> T call(Class<?> type, Object owner, String method, Class<?>[] parameters, Object... arguments)
            throws ReflectiveOperationException {
        Method m = type.getDeclaredMethod(method, parameters);
        m.setAccessible(true);
        return (T) m.invoke(owner, arguments);
    }
}
