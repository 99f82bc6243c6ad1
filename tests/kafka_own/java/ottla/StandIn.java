package ottla;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.function.Function;
import org.mockito.MockSettings;
import org.mockito.Mockito;
import org.mockito.invocation.InvocationOnMock;
import org.mockito.stubbing.Answer;

/** Objects that have a Kafka class and answer by the methods of another object that have the same name. */
final class StandIn {
    private StandIn() {
    }

    /** An object of a Kafka class; what `answers` has no method for is given to `otherwise` by its name. */
    static <T> T of(Class<T> kind, Object answers, Function<String, RuntimeException> otherwise) {
        return Mockito.mock(kind, settings(kind, mock -> answers, otherwise));
    }

    static MockSettings settings(Class<?> kind, Function<Object, Object> answersOf, Function<String, RuntimeException> otherwise) {
        Answer<Object> answer = invocation -> {
            Object answers = answersOf.apply(invocation.getMock());
            Method method = find(answers, invocation);
            if (method != null) {
                try {
                    return method.invoke(answers, invocation.getArguments());
                } catch (InvocationTargetException failure) {
                    throw failure.getCause();
                }
            }
            String name = invocation.getMethod().getName();
            if (name.equals("toString")) {
                return kind.getSimpleName() + " of " + answers;
            }
            throw otherwise.apply(kind.getSimpleName() + "." + name);
        };
        return Mockito.withSettings().stubOnly().defaultAnswer(answer);
    }

    private static Method find(Object answers, InvocationOnMock invocation) {
        Method wanted = invocation.getMethod();
        for (Method method : answers.getClass().getDeclaredMethods()) {
            if (method.getName().equals(wanted.getName()) && java.util.Arrays.equals(method.getParameterTypes(), wanted.getParameterTypes())
                    && java.lang.reflect.Modifier.isPublic(method.getModifiers())) {
                method.setAccessible(true);
                return method;
            }
        }
        return null;
    }
}
