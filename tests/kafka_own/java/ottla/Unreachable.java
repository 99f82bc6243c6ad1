package ottla;

import java.util.concurrent.atomic.AtomicReference;

/** What a test asked of its brokers and a broker in another process cannot give. A test in which this happened is left
 *  out, whatever became of it: the first of these is its reason. */
final class Unreachable extends org.opentest4j.TestAbortedException {
    private static final AtomicReference<Unreachable> first = new AtomicReference<>();

    /** Whether Kafka's controllers, which run in the process of the tests, can give it. */
    final boolean fromKafkasControllers;

    private Unreachable(String reason, boolean fromKafkasControllers) {
        super(reason);
        this.fromKafkasControllers = fromKafkasControllers;
    }

    /** A test wants an object of the broker's own virtual machine. */
    static Unreachable inTheBroker(String what) {
        return noted(new Unreachable("reaches into the JVM: " + what, false));
    }

    /** A test sets a Java class that the broker would load. */
    static Unreachable plugin(String name, Object value) {
        return noted(new Unreachable("a Java class in the broker: " + name + "=" + value, false));
    }

    /** A test has a cluster that this broker does not make. */
    static Unreachable cluster(String reason) {
        return noted(new Unreachable(reason, false));
    }

    /** A test needs more of its controllers than a node with its own controller has. */
    static Unreachable controllers(String reason) {
        return noted(new Unreachable(reason, true));
    }

    private static Unreachable noted(Unreachable unreachable) {
        first.compareAndSet(null, unreachable);
        return unreachable;
    }

    /** The first one since the last call, or null. */
    static Unreachable takeFirst() {
        return first.getAndSet(null);
    }
}
