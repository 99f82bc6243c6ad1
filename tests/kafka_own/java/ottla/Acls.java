package ottla;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DeleteAclsResult;
import org.apache.kafka.common.Endpoint;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.server.authorizer.AclCreateResult;
import org.apache.kafka.server.authorizer.AclDeleteResult;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.authorizer.AuthorizerServerInfo;
import scala.Option;

/** The ACLs of a cluster: read from a node's metadata log, changed by requests to its controller. */
final class Acls implements Authorizer {
    private final Broker node;
    private final String controllers;

    private Acls(Broker node, String controllers) {
        this.node = node;
        this.controllers = controllers;
    }

    /** The authorizer of a node; `controllers` is the address where ACLs are changed. */
    static Option<Plugin<Authorizer>> plugin(Broker node, String controllers) {
        return Option.apply(Plugin.wrapInstance(new Acls(node, controllers), new Metrics(), "authorizer.class.name"));
    }

    @Override
    public Iterable<AclBinding> acls(AclBindingFilter filter) {
        return node.image().acls().acls().values().stream().map(StandardAcl::toBinding).filter(filter::matches).toList();
    }

    @Override
    public List<? extends CompletionStage<AclCreateResult>> createAcls(AuthorizableRequestContext context, List<AclBinding> bindings) {
        try (Admin admin = admin()) {
            admin.createAcls(bindings).all().get();
            return bindings.stream().map(binding -> CompletableFuture.completedFuture(AclCreateResult.SUCCESS)).toList();
        } catch (ExecutionException refused) {
            ApiException reason = (ApiException) refused.getCause();
            return bindings.stream().map(binding -> CompletableFuture.completedFuture(new AclCreateResult(reason))).toList();
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }

    @Override
    public List<? extends CompletionStage<AclDeleteResult>> deleteAcls(AuthorizableRequestContext context, List<AclBindingFilter> filters) {
        List<CompletionStage<AclDeleteResult>> results = new ArrayList<>();
        try (Admin admin = admin()) {
            DeleteAclsResult deleted = admin.deleteAcls(filters);
            for (AclBindingFilter filter : filters) {
                Collection<AclDeleteResult.AclBindingDeleteResult> each = deleted.values().get(filter).get().values().stream()
                    .map(result -> new AclDeleteResult.AclBindingDeleteResult(result.binding())).toList();
                results.add(CompletableFuture.completedFuture(new AclDeleteResult(each)));
            }
        } catch (ExecutionException | InterruptedException failure) {
            throw new IllegalStateException(failure);
        }
        return results;
    }

    private Admin admin() {
        if (controllers == null) {
            throw Unreachable.inTheBroker("Authorizer of a broker, which changes no ACLs");
        }
        return Admin.create(Map.of("bootstrap.controllers", controllers));
    }

    @Override
    public Map<Endpoint, ? extends CompletionStage<Void>> start(AuthorizerServerInfo info) {
        throw Unreachable.inTheBroker("Authorizer.start");
    }

    @Override
    public List<AuthorizationResult> authorize(AuthorizableRequestContext context, List<Action> actions) {
        throw Unreachable.inTheBroker("Authorizer.authorize");
    }

    @Override
    public void configure(Map<String, ?> configs) {
        // It has none.
    }

    @Override
    public void close() {
        // Nothing is open.
    }
}
