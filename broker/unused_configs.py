"""Settings of Apache Kafka 4.1 that mean nothing here, so that a real server.properties starts.

They are Kafka's (``KafkaConfig.configDef`` and ``StandardAuthorizer``) without those that
``config`` knows. Their values are neither checked nor shown.
"""

from __future__ import annotations

from collections.abc import Mapping

# The rest of each name by its beginning.
_NAMES: Mapping[str, str] = {
    "": """
        add.partitions.to.txn.retry.backoff.ms allow.everyone.if.no.acl.found
        alter.config.policy.class.name alter.log.dirs.replication.quota.window.num
        alter.log.dirs.replication.quota.window.size.seconds auto.leader.rebalance.enable
        background.threads broker.heartbeat.interval.ms broker.rack broker.session.timeout.ms
        client.quota.callback.class connection.failed.authentication.delay.ms
        connections.max.reauth.ms controlled.shutdown.enable create.topic.policy.class.name
        delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms
        delegation.token.max.lifetime.ms delegation.token.secret.key
        delete.records.purgatory.purge.interval.requests early.start.listeners
        fetch.purgatory.purge.interval.requests initial.broker.registration.timeout.ms
        internal.metadata.delete.delay.millis internal.metadata.log.segment.bytes
        internal.metadata.max.batch.size.in.bytes internal.metadata.max.fetch.size.in.bytes
        kafka.metrics.polling.interval.secs kafka.metrics.reporters
        leader.imbalance.check.interval.seconds metric.reporters metrics.num.samples
        metrics.recording.level metrics.sample.window.ms num.replica.alter.log.dirs.threads
        num.replica.fetchers offsets.commit.timeout.ms offsets.load.buffer.size
        offsets.topic.compression.codec offsets.topic.segment.bytes principal.builder.class
        producer.id.expiration.check.interval.ms producer.purgatory.purge.interval.requests
        queued.max.request.bytes queued.max.requests quota.window.num quota.window.size.seconds
        replication.quota.window.num replication.quota.window.size.seconds request.timeout.ms
        security.inter.broker.protocol security.providers server.max.startup.time.ms
        socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
        socket.listen.backlog.size super.users telemetry.max.bytes
        transaction.partition.verification.enable transaction.state.log.load.buffer.size
        transaction.state.log.segment.bytes transaction.two.phase.commit.enable
        unclean.leader.election.interval.ms unstable.api.versions.enable
        unstable.feature.versions.enable
    """,
    "controller.": """
        performance.always.log.threshold.ms performance.sample.period.ms quota.window.num
        quota.window.size.seconds socket.timeout.ms
    """,
    "controller.quorum.": """
        append.linger.ms bootstrap.servers election.backoff.max.ms election.timeout.ms
        fetch.timeout.ms request.timeout.ms retry.backoff.ms
    """,
    "group.": """
        coordinator.append.linger.ms coordinator.rebalance.protocols coordinator.threads
    """,
    "group.consumer.": """
        assignors heartbeat.interval.ms max.heartbeat.interval.ms max.session.timeout.ms
        max.size migration.policy min.heartbeat.interval.ms min.session.timeout.ms
        regex.refresh.interval.ms session.timeout.ms
    """,
    "group.share.": """
        assignors delivery.count.limit enable heartbeat.interval.ms min.heartbeat.interval.ms
        min.record.lock.duration.ms min.session.timeout.ms partition.max.record.locks
        persister.class.name record.lock.duration.ms session.timeout.ms
    """,
    "group.share.max.": """
        heartbeat.interval.ms record.lock.duration.ms session.timeout.ms share.sessions size
    """,
    "group.streams.": """
        heartbeat.interval.ms max.heartbeat.interval.ms max.session.timeout.ms max.size
        max.standby.replicas min.heartbeat.interval.ms min.session.timeout.ms
        num.standby.replicas session.timeout.ms
    """,
    "log.": """
        dir.failure.timeout.ms flush.interval.ms flush.offset.checkpoint.interval.ms
        flush.scheduler.interval.ms flush.start.offset.checkpoint.interval.ms
        initial.task.delay.ms local.retention.bytes local.retention.ms roll.jitter.hours
    """,
    "log.cleaner.": """
        dedupe.buffer.size io.buffer.load.factor io.buffer.size
        io.max.bytes.per.second threads
    """,
    "max.": """
        connection.creation.rate connections.per.ip connections.per.ip.overrides
        incremental.fetch.session.cache.slots request.partition.size.limit
    """,
    "metadata.": """
        max.idle.interval.ms max.retention.bytes max.retention.ms
    """,
    "metadata.log.": """
        dir max.record.bytes.between.snapshots max.snapshot.interval.ms segment.bytes segment.ms
    """,
    "remote.": """
        fetch.max.wait.ms list.offsets.request.timeout.ms
    """,
    "remote.log.": """
        index.file.cache.total.size.bytes reader.max.pending.tasks reader.threads
        storage.manager.class.name storage.manager.class.path storage.manager.impl.prefix
        storage.system.enable
    """,
    "remote.log.manager.": """
        copier.thread.pool.size copy.max.bytes.per.second copy.quota.window.num
        copy.quota.window.size.seconds expiration.thread.pool.size fetch.max.bytes.per.second
        fetch.quota.window.num fetch.quota.window.size.seconds task.interval.ms
        task.retry.backoff.max.ms task.retry.backoff.ms task.retry.jitter thread.pool.size
    """,
    "remote.log.metadata.": """
        custom.metadata.max.bytes manager.class.name manager.class.path manager.impl.prefix
        manager.listener.name
    """,
    "replica.": """
        high.watermark.checkpoint.interval.ms selector.class socket.receive.buffer.bytes
        socket.timeout.ms
    """,
    "replica.fetch.": """
        backoff.ms max.bytes min.bytes response.max.bytes wait.max.ms
    """,
    "sasl.": """
        client.callback.handler.class enabled.mechanisms jaas.config
        mechanism.controller.protocol mechanism.inter.broker.protocol
        server.callback.handler.class server.max.receive.size
    """,
    "sasl.kerberos.": """
        kinit.cmd min.time.before.relogin principal.to.local.rules service.name
        ticket.renew.jitter ticket.renew.window.factor
    """,
    "sasl.login.": """
        callback.handler.class class connect.timeout.ms read.timeout.ms refresh.buffer.seconds
        refresh.min.period.seconds refresh.window.factor refresh.window.jitter
        retry.backoff.max.ms retry.backoff.ms
    """,
    "sasl.oauthbearer.": """
        client.credentials.client.id client.credentials.client.secret clock.skew.seconds
        expected.audience expected.issuer jwks.endpoint.refresh.ms
        jwks.endpoint.retry.backoff.max.ms jwks.endpoint.retry.backoff.ms jwks.endpoint.url
        jwt.retriever.class jwt.validator.class scope scope.claim.name sub.claim.name
        token.endpoint.url
    """,
    "sasl.oauthbearer.assertion.": """
        algorithm claim.aud claim.exp.seconds claim.iss claim.jti.include claim.nbf.seconds
        claim.sub file private.key.file private.key.passphrase template.file
    """,
    "share.": """
        fetch.purgatory.purge.interval.requests
    """,
    "share.coordinator.": """
        append.linger.ms cold.partition.snapshot.interval.ms load.buffer.size
        snapshot.update.records.per.snapshot state.topic.compression.codec
        state.topic.num.partitions state.topic.prune.interval.ms state.topic.segment.bytes
        threads write.timeout.ms
    """,
    "ssl.": """
        allow.dn.changes allow.san.changes cipher.suites client.auth enabled.protocols
        endpoint.identification.algorithm engine.factory.class key.password keymanager.algorithm
        principal.mapping.rules protocol provider secure.random.implementation
        trustmanager.algorithm truststore.certificates truststore.location truststore.password
        truststore.type
    """,
    "ssl.keystore.": """
        certificate.chain key location password type
    """,
}

_UNUSED_CONFIGS = frozenset(
    beginning + rest for beginning, names in _NAMES.items() for rest in names.split()
)

_UNUSED_PREFIXES = ("listener.name.", "rlmm.config.", "rsm.config.")
"""Of settings of one listener, and of plug-ins."""


def is_unused(name: str) -> bool:
    """Whether Kafka has a setting of this name that this broker has no use for."""
    return name in _UNUSED_CONFIGS or name.startswith(_UNUSED_PREFIXES)
