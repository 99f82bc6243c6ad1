package ottla;

import java.io.IOException;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.platform.commons.support.HierarchyTraversalMode;
import org.junit.platform.commons.support.ReflectionSupport;
import org.junit.platform.engine.DiscoverySelector;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.UniqueId;
import org.junit.platform.engine.discovery.DiscoverySelectors;
import org.junit.platform.launcher.Launcher;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;
import org.mockito.MockedConstruction;

/** Runs a test class of Kafka's: `RunTests RESULTS CLASS [METHOD ...]`. Writes a line for each test when it is over: its
 *  name, what became of it, the milliseconds, and the reason, with tabs between.
 *
 *  A test that needs more of its controllers than a node with its own controller has is run again under Kafka's. */
public final class RunTests {
    private static final Map<String, String> PARAMETERS = Map.of(
        "junit.jupiter.extensions.autodetection.enabled", "true",
        "junit.jupiter.execution.timeout.testable.method.default", "5 m");

    static Thread testThread;
    private static boolean ownController;

    private RunTests() {
    }

    public static void main(String[] words) throws IOException {
        testThread = Thread.currentThread();
        List<String> methods = List.of(words).subList(2, words.length);
        List<DiscoverySelector> selectors = new ArrayList<>();
        Class<?> tests = load(words[1]);
        if (methods.isEmpty()) {
            selectors.add(DiscoverySelectors.selectClass(tests));
        }
        ReflectionSupport.findMethods(tests, method -> methods.contains(method.getName()), HierarchyTraversalMode.TOP_DOWN)
            .forEach(method -> selectors.add(DiscoverySelectors.selectMethod(tests, method)));
        try (PrintStream results = new PrintStream(Files.newOutputStream(Path.of(words[0]), StandardOpenOption.CREATE, StandardOpenOption.APPEND))) {
            Results own = new Results(results, true);
            run(selectors, own, true);
            if (!own.again.isEmpty()) {
                run(own.again, new Results(results, false), false);
            }
        }
        System.exit(0); // Threads of the tests may be left.
    }

    private static Class<?> load(String name) {
        try {
            return Class.forName(name, false, RunTests.class.getClassLoader()); // not initialised: some make their cluster then
        } catch (ClassNotFoundException missing) {
            throw new IllegalArgumentException(missing);
        }
    }

    private static void run(List<DiscoverySelector> selectors, Results results, boolean own) {
        ownController = own;
        Launcher launcher = LauncherFactory.create();
        List<MockedConstruction<?>> replaced = Cluster.standIns(own);
        try {
            launcher.execute(LauncherDiscoveryRequestBuilder.request().selectors(selectors).configurationParameters(PARAMETERS).build(), results);
        } finally {
            replaced.forEach(MockedConstruction::close);
        }
    }

    /** What becomes of each test. */
    private static final class Results implements TestExecutionListener {
        private final PrintStream output;
        private final boolean first;
        private final Map<String, Long> began = new HashMap<>();
        private final List<DiscoverySelector> again = new ArrayList<>();

        Results(PrintStream output, boolean first) {
            this.output = output;
            this.first = first;
        }

        @Override
        public void executionStarted(TestIdentifier test) {
            Unreachable.takeFirst();
            Broker.forgetEnded();
            began.put(test.getUniqueId(), System.nanoTime());
        }

        @Override
        public void executionSkipped(TestIdentifier test, String reason) {
            if (reason.equals(LeftOut.FOR_KAFKAS_CONTROLLERS)) {
                again.add(DiscoverySelectors.selectUniqueId(test.getUniqueId()));
            } else if (!reason.equals(Twins.REASON)) {
                write(test, "left out", 0, reason);
            }
        }

        @Override
        public void executionFinished(TestIdentifier test, TestExecutionResult result) {
            Optional<Throwable> failure = result.getThrowable();
            long milliseconds = (System.nanoTime() - began.get(test.getUniqueId())) / 1_000_000;
            failure.map(Results::describe).filter(text -> text.contains("Unable to find metric"))
                .ifPresent(text -> Unreachable.inTheBroker("its registry of metrics"));
            Unreachable unreachable = Unreachable.takeFirst();
            if (failure.isEmpty()) {
                if (test.isTest() && Broker.anyRan()) {
                    write(test, "passed", milliseconds, "");
                } else if (test.isTest()) {
                    write(test, "left out", milliseconds, "starts no broker");
                }
            } else if (unreachable == null) {
                boolean aborted = result.getStatus() == TestExecutionResult.Status.ABORTED;
                write(test, aborted ? "left out" : "failed", milliseconds, describe(failure.get()));
                if (!aborted) {
                    failure.get().printStackTrace();
                }
            } else if (first && unreachable.fromKafkasControllers) {
                again.add(DiscoverySelectors.selectUniqueId(test.getUniqueId()));
            } else {
                write(test, "left out", milliseconds, unreachable.getMessage());
            }
        }

        private void write(TestIdentifier test, String outcome, long milliseconds, String reason) {
            String under = first ? "" : " under Kafka's controllers";
            output.println(name(test) + "\t" + outcome + under + "\t" + milliseconds + "\t" + reason.replaceAll("\\s+", " ").strip());
            output.flush();
        }

        /** The method, the number of a repeated one, and what it is repeated with. */
        private static String name(TestIdentifier test) {
            StringBuilder name = new StringBuilder();
            for (UniqueId.Segment segment : test.getUniqueIdObject().getSegments()) {
                switch (segment.getType()) {
                    case "method", "test-template" -> name.append(segment.getValue().replaceAll("\\(.*", ""));
                    case "test-template-invocation" -> name.append(segment.getValue());
                    default -> { }
                }
            }
            return name.isEmpty() ? "class" : name.toString();
        }

        private static String describe(Throwable failure) {
            StringBuilder text = new StringBuilder();
            for (Throwable each = failure; each != null; each = each.getCause()) {
                text.append(text.isEmpty() ? "" : " < ").append(each);
            }
            return text.length() > 1000 ? text.substring(0, 1000) : text.toString();
        }
    }

    /** Leaves out the tests that the table leaves out, for good or for the run under Kafka's controllers. */
    public static final class LeftOut implements ExecutionCondition {
        static final String FOR_KAFKAS_CONTROLLERS = "run under Kafka's controllers";
        private static final Map<String, String> reasons = new HashMap<>();

        static {
            try {
                Files.readAllLines(Path.of(System.getProperty("ottla.exceptions")))
                    .forEach(line -> reasons.put(line.split("\t")[0], line.split("\t")[1]));
            } catch (IOException failure) {
                throw new UncheckedIOException(failure);
            }
        }

        @Override
        public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
            String reason = reasons.get(context.getTestMethod().map(Method::getName).orElse("class"));
            return reason != null && (ownController || !reason.equals(FOR_KAFKAS_CONTROLLERS))
                ? ConditionEvaluationResult.disabled(reason)
                : ConditionEvaluationResult.enabled("");
        }
    }

    /** Leaves out a test with broker and controller in one process where the same test has them in two: here they are the
     *  same. */
    public static final class Twins implements ExecutionCondition {
        static final String REASON = "the twin of another test";
        private static final Set<String> isolated = new HashSet<>();

        @Override
        public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
            String name = context.getDisplayName();
            String method = context.getRequiredTestClass().getName() + context.getTestMethod().map(Object::toString).orElse("");
            if (name.contains("Raft-Isolated")) {
                isolated.add(method);
            }
            return name.contains("Raft-Combined") && isolated.contains(method)
                ? ConditionEvaluationResult.disabled(REASON)
                : ConditionEvaluationResult.enabled("");
        }
    }
}
