"""QuotaEnforcement: a metadata subscriber that has dispatcher and acceptors hold clients to the cluster's quotas."""

from __future__ import annotations

from time import monotonic_ns
from typing import TYPE_CHECKING

from broker.dispatch.dispatcher import Dispatcher
from broker.metadata.image.carried import KeyedImage
from broker.metadata.image.metadata_image import MetadataDelta, MetadataImage
from broker.metrics.sources import MetricSources
from broker.network.connection_limits import ConnectionLimits
from broker.runtime.clock import Clock
from broker.runtime.worker_thread import WorkerThread
from config.broker_settings import BrokerSettings
from protocol.records.cluster_metadata import ClientQuotaRecord

if TYPE_CHECKING:
    from broker.security.quotas.address_quotas import AddressQuotas
    from broker.security.quotas.client_quotas import ClientQuotas


class QuotaEnforcement:
    """Without a quota in the cluster nothing is imported here, and nobody is asked about quotas."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        clock: Clock,
        dispatcher: Dispatcher,
        limits: ConnectionLimits,
        resolver: WorkerThread,
        sources: MetricSources,
    ) -> None:
        """``resolver``: looks up the addresses of host names."""
        self._settings = settings
        self._clock = clock
        self._dispatcher = dispatcher
        self._limits = limits
        self._resolver = resolver
        self._sources = sources
        self._enforced = KeyedImage()
        self._of_clients: ClientQuotas | None = None
        self._of_addresses: AddressQuotas | None = None

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take over the quotas of an image, if they have changed."""
        self.enforce(image)

    def enforce(self, image: MetadataImage) -> None:
        """Take over the quotas of an image, if they have changed."""
        quotas = image.client_quotas
        if quotas is self._enforced or not (quotas.by_key or self._enforced.by_key):
            return
        from broker.security.quotas.limits import is_of_address

        self._enforced = quotas
        records = [record for record in quotas.by_key.values() if isinstance(record, ClientQuotaRecord)]
        self._limit_clients([record for record in records if not is_of_address(record)])
        self._limit_addresses([record for record in records if is_of_address(record)])

    def _limit_clients(self, records: list[ClientQuotaRecord]) -> None:
        if not records:
            self._of_clients = self._dispatcher.quotas = self._sources.client_quotas = None
            return
        if self._of_clients is None:
            self._of_clients = self._sources.client_quotas = self._make_client_quotas()
        self._of_clients.update(records)
        self._dispatcher.quotas = self._of_clients

    def _limit_addresses(self, records: list[ClientQuotaRecord]) -> None:
        if not records:
            self._of_addresses = self._limits.of_addresses = None
            return
        from broker.network.host_addresses import address_of, resolved
        from broker.security.quotas.limits import DEFAULT, address_limits

        by_host = address_limits(records)
        limits = {host if host == DEFAULT else address_of(host): limit for host, limit in by_host.items()}
        names = {host: limit for host, limit in by_host.items() if host != DEFAULT and address_of(host) is None}
        self._set_address_limits({address: limit for address, limit in limits.items() if address is not None})
        if not names:
            return
        enforced = self._enforced

        def look_up() -> dict[str, float]:
            found = {resolved(host): limit for host, limit in names.items()}
            return {address: limit for address, limit in found.items() if address is not None}

        def done(found: dict[str, float]) -> None:
            if self._enforced is enforced:
                self._set_address_limits({**found, **{host: one for host, one in limits.items() if host is not None}})

        self._resolver.submit(look_up, done, lambda error: None)

    def _set_address_limits(self, limits: dict[str, float]) -> None:
        from broker.security.quotas.address_quotas import AddressQuotas

        if self._of_addresses is None:
            self._of_addresses = AddressQuotas(
                windows=self._settings.quota_window_num, window_ms=self._settings.quota_window_size_seconds * 1_000
            )
        self._of_addresses.update(limits)
        self._limits.of_addresses = self._of_addresses

    def _make_client_quotas(self) -> ClientQuotas:
        from broker.security.quotas.client_quotas import ClientQuotas
        from broker.security.quotas.usage import QuotaWindows

        settings = self._settings
        return ClientQuotas(
            clock=self._clock,
            now_ns=monotonic_ns,
            windows=QuotaWindows(settings.quota_window_num, settings.quota_window_size_seconds * 1_000),
            mutation_windows=QuotaWindows(
                settings.controller_quota_window_num, settings.controller_quota_window_size_seconds * 1_000
            ),
        )
