import { Resolver } from 'node:dns/promises';
import type { DnsDiscovery } from '../../config/config.ts';
import type { Discovered } from '../../config/discovered.ts';
import { hostName, isPort, serverAddress, urlAt } from '../../platform/outbound/server-url.ts';
import { pollSource, SourceError, type Look, type RunningSource, type SourceReader } from './source.ts';

const queryTimeoutMs = 2_000;
const queryTries = 2;
/** Maximum SRV records taken from one answer; the name in each is looked up. */
const targetsMax = 512;
const lookupsAtOnce = 16;

/** Resolves the host in `url`, and again whenever its TTL expires, within the configured bounds. */
export function openDns(url: string, settings: DnsDiscovery, reader: SourceReader): RunningSource {
  const name = new URL(url).hostname;
  // The last answer for each name and record type: one type may fail while the other answers.
  const known: Known = new Map();
  const look = settings.by === 'srv' ? lookAtServices : lookAtAddresses;
  return pollSource(
    async (signal) => {
      const resolver = new Resolver({ timeout: queryTimeoutMs, tries: queryTries });
      if (settings.dnsServers.length > 0) resolver.setServers(settings.dnsServers);
      const cancel = (): void => resolver.cancel();
      signal.addEventListener('abort', cancel, { once: true });
      try {
        const { servers, ttlMs } = await look(resolver, url, name, known);
        const againMs = Math.min(Math.max(ttlMs, settings.ttlMinMs), settings.ttlMaxMs);
        return { servers, againMs } satisfies Look;
      } finally {
        signal.removeEventListener('abort', cancel);
      }
    },
    reader,
    `the name server does not answer for ${name}`,
  );
}

type Known = Map<string, readonly string[]>;

interface Answer {
  readonly servers: readonly Discovered[];
  readonly ttlMs: number;
}

async function lookAtAddresses(resolver: Resolver, url: string, name: string, known: Known): Promise<Answer> {
  const { addresses, ttlMs } = await addressesOf(resolver, name, known);
  // Sorted: name servers rotate their answers, and where there are too many addresses the first ones should stay the same.
  const servers = addresses.toSorted().map((address) => ({ url: urlAt(url, address), serverName: name }));
  return { servers, ttlMs };
}

/** Node does not expose the TTL of SRV records, so that of their targets' addresses is used for both. */
async function lookAtServices(resolver: Resolver, url: string, name: string, known: Known): Promise<Answer> {
  const records = (await unlessNone(resolver.resolveSrv(name), [])).slice(0, targetsMax);
  const priorities = [...new Set(records.map(({ priority }) => priority))].sort((a, b) => a - b);
  const heaviest = Math.max(1, ...records.map(({ weight }) => weight));
  let ttlMs = Infinity;
  const found: Discovered[] = [];
  const targets = records.flatMap((record) => {
    const target = hostName(record.name);
    return target === undefined || !isPort(record.port) ? [] : [{ ...record, target }];
  });
  for (let from = 0; from < targets.length; from += lookupsAtOnce) {
    const some = targets.slice(from, from + lookupsAtOnce);
    const answers = await Promise.all(some.map(({ target }) => addressesOf(resolver, target, known)));
    for (const [index, { addresses, ttlMs: own }] of answers.entries()) {
      const { target, port, priority, weight } = some[index]!;
      ttlMs = Math.min(ttlMs, own);
      for (const address of addresses)
        found.push({
          url: urlAt(url, address, port),
          serverName: target,
          ...(priorities.length < 2 ? {} : { rank: priorities.indexOf(priority) + 1 }),
          // RFC 2782: a target of weight 0 hardly gets anything beside others.
          ...(records.every((each) => each.weight === weight) ? {} : { weight: Math.max(0.01, weight / heaviest) }),
        });
    }
  }
  return { servers: found.toSorted((a, b) => (a.url < b.url ? -1 : 1)), ttlMs };
}

/** Returns the addresses of both types. Where one type cannot be resolved now, its last answer is used. */
async function addressesOf(
  resolver: Resolver,
  name: string,
  known: Known,
): Promise<{ readonly addresses: readonly string[]; readonly ttlMs: number }> {
  const kinds = [
    ['A', resolver.resolve4(name, { ttl: true })],
    ['AAAA', resolver.resolve6(name, { ttl: true })],
  ] as const;
  const answers = await Promise.allSettled(kinds.map(([, asked]) => unlessNone(asked, [])));
  let ttlMs = Infinity;
  const failures: unknown[] = [];
  const addresses = answers.flatMap((answer, index) => {
    const key = `${kinds[index]![0]} ${name}`;
    if (answer.status === 'rejected') {
      failures.push(answer.reason);
      return known.get(key) ?? [];
    }
    for (const { ttl } of answer.value) ttlMs = Math.min(ttlMs, ttl * 1_000);
    const found = answer.value.flatMap(({ address }) => serverAddress(address) ?? []);
    known.set(key, found);
    return found;
  });
  // Some name servers never answer AAAA queries.
  if (failures.length === kinds.length || (failures.length > 0 && addresses.length === 0)) throw failures[0];
  return { addresses: [...new Set(addresses)], ttlMs };
}

/** Returns `none` where the name has no such record, or does not exist: that is an answer, not a failure. */
async function unlessNone<Value>(asked: Promise<Value>, none: Value): Promise<Value> {
  try {
    return await asked;
  } catch (error) {
    const { code } = error as { readonly code?: string };
    if (code === 'ENODATA' || code === 'ENOTFOUND') return none;
    if (code === 'EBADNAME' || code === 'ENONAME') throw new SourceError('the host in url is not a name of DNS');
    throw error;
  }
}
