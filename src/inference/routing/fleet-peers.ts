/**
 * What the processes that send requests to the same servers report to each other, so that together they choose nearly as one would
 * (docs/decisions/039-fleets-of-replicas.md): what runs and waits at each backend, which prompts were sent there, how fast it reads, and
 * that it was left out. Each report is the whole state of its sender, except for the prompts and the servers' own reports, which are those
 * since the previous one.
 */
import { messageCharactersMax, type PeerMessage } from '../../platform/peers/peers.ts';
import type { BackendLoad } from './backend-load.ts';
import type { NewEnds } from './earlier-prompts.ts';
import type { Fleet } from './fleet.ts';
import { isSharedReport, type ServerReports, type SharedReport } from './server-reports.ts';

interface Named {
  /** The backend's name in the configuration, the same in all processes. */
  readonly label: string;
}

/** `[running, waiting tokens, tokens per second, times it was left out, still left out for ms]`, all whole numbers from 0. */
type ReportedLoad = readonly [number, number, number, number, number];

/** `[backend, hashes, tokens up to the end of each prefix]` */
type ReportedPrompt = readonly [string, readonly number[], readonly number[]];

interface Report {
  /** Version of the message format: processes of two versions run side by side during an upgrade. */
  readonly v: 1;
  /** Backends with nothing to report are left out. */
  readonly load: ByBackend<ReportedLoad>;
  readonly prompts: Readonly<Record<string, readonly ReportedPrompt[]>>;
  /** Number of requests without a first token, where there are any. Older processes neither send nor read the fields from here on. */
  readonly waiting: ByBackend<number>;
  readonly servers: ByBackend<SharedReport>;
  /** Where messages of these prompts end, by model. */
  readonly messages: Readonly<Record<string, readonly NewEnds[]>>;
}

/** Values by model, then by backend. */
type ByBackend<Value> = Readonly<Record<string, Readonly<Record<string, Value>>>>;

interface Peer {
  heardAtMs: number;
  load: Report['load'];
  waiting: Report['waiting'];
  /** How often the peer has left out a backend, and whether it does so now, by model and backend. */
  readonly health: Map<string, { readonly ejections: number; readonly isOut: boolean }>;
}

/** A peer that was silent for longer has ended or cannot be heard: what it runs is unknown. Several times the interval between messages. */
const silentMaxMs = 3_000;
/** Bounds what is read from peers, which may run another version, and what is kept of them. */
const peersMax = 1_000;
/** Prompts in one message, the newest ones: about 300 bytes each. */
const promptsMax = 1_000;
/** More than any version has for one prompt (`prompt-prefixes.ts`: 68). */
const prefixesMax = 1_000;
/** Ends of messages in one report, about 11 characters each; a turn of a conversation has two or three. */
const endsMax = 5_000;

/** The other processes, as last heard by this one. `fleetsOf`: the fleets in use, by model. `servers`: the servers' own reports. */
export class FleetPeers<Member extends BackendLoad & Named> {
  readonly #fleetsOf: () => ReadonlyMap<string, Fleet<Member>>;
  readonly #servers: ServerReports<Member> | undefined;
  readonly #peers = new Map<string, Peer>();
  #hasReported = false;
  /** Number of reports sent and heard. */
  readonly reports = { sent: 0, heard: 0 };

  constructor(fleetsOf: () => ReadonlyMap<string, Fleet<Member>>, servers?: ServerReports<Member>) {
    this.#fleetsOf = fleetsOf;
    this.#servers = servers;
  }

  /** Number of other processes heard. */
  get count(): number {
    return this.#peers.size;
  }

  /** Whether any model has a choice of backends, so that reports from others matter. */
  get hasChoice(): boolean {
    for (const { members } of this.#fleetsOf().values()) if (members.length > 1) return true;
    return false;
  }

  /** The report for the other processes; `undefined`: there is nothing to report, and they know that. */
  report(nowMs: number): string | undefined {
    const load: Record<string, Record<string, ReportedLoad>> = {};
    const prompts: Record<string, ReportedPrompt[]> = {};
    const waiting: Record<string, Record<string, number>> = {};
    const servers: Record<string, Record<string, SharedReport>> = {};
    const messages: Record<string, NewEnds[]> = {};
    let left = promptsMax;
    let endsLeft = endsMax;
    for (const [model, fleet] of this.#fleetsOf()) {
      if (fleet.members.length < 2) continue;
      const reported = fleet.members.flatMap((member) => reportOf(member, nowMs));
      if (reported.length > 0) load[model] = Object.fromEntries(reported);
      const waits = fleet.members.filter((member) => member.waiting.size > 0);
      if (waits.length > 0)
        waiting[model] = Object.fromEntries(waits.map(({ label, waiting: { size } }) => [label, size]));
      const news = this.#servers?.takeNews(model, nowMs) ?? [];
      if (news.length > 0) servers[model] = Object.fromEntries(news.map(([{ label }, shared]) => [label, shared]));
      const ends = fleet.earlier.takeNews().filter(({ length }) => (endsLeft -= length) >= 0);
      if (ends.length > 0) messages[model] = ends;
      const sent = fleet.takeSent().slice(-left);
      left -= sent.length;
      if (sent.length > 0)
        prompts[model] = sent.map(({ member, prefixes: { hashes, tokens } }) => [
          member.label,
          hashes,
          tokens.map(Math.round),
        ]);
      if (left === 0) break;
    }
    const hasNews = [load, prompts, servers].some((part) => Object.keys(part).length > 0);
    const isWorthReporting = hasNews || this.#hasReported;
    this.#hasReported = hasNews;
    const message: Report = { v: 1, load, prompts, waiting, servers, messages };
    if (!isWorthReporting) return undefined;
    this.reports.sent++;
    return JSON.stringify(message);
  }

  /** Applies what others have reported since the last call. Skips messages that cannot be parsed. */
  hear(messages: readonly PeerMessage[], nowMs: number): void {
    for (const { from, text } of messages) {
      const report = reportIn(text);
      if (report !== undefined) this.#take(from, report, nowMs);
    }
    for (const [from, { heardAtMs }] of this.#peers) if (nowMs - heardAtMs > silentMaxMs) this.#peers.delete(from);
    this.#sumLoads();
  }

  #take(from: string, report: Report, nowMs: number): void {
    let peer = this.#peers.get(from);
    if (peer === undefined) {
      if (this.#peers.size >= peersMax) return;
      peer = { heardAtMs: nowMs, load: {}, waiting: {}, health: new Map() };
      this.#peers.set(from, peer);
    }
    peer.heardAtMs = nowMs;
    this.reports.heard++;
    peer.load = report.load;
    peer.waiting = report.waiting;
    for (const [model, fleet] of this.#fleetsOf()) {
      const loads = report.load[model] ?? {};
      const prompts = report.prompts[model] ?? [];
      const members = new Map(fleet.members.map((member) => [member.label, member]));
      for (const [label, [, , tokensPerSecond, ejections, ejectedForMs]] of Object.entries(loads)) {
        const member = members.get(label);
        if (member === undefined) continue;
        if (tokensPerSecond > 0) fleet.measuredElsewhere(member, tokensPerSecond, nowMs);
        takeHealth(
          peer,
          `${model} ${label}`,
          { ejections, ejectedForMs },
          {
            out: () => fleet.ejectedElsewhere(member, ejectedForMs, nowMs),
            back: () => fleet.backElsewhere(member, nowMs),
          },
        );
      }
      for (const ends of report.messages[model] ?? []) fleet.earlier.add(ends);
      for (const [label, hashes, tokens] of prompts) {
        const member = members.get(label);
        if (member !== undefined) fleet.sentElsewhere(member, { hashes, tokens });
      }
      const servers = Object.entries(report.servers[model] ?? {});
      if (servers.length === 0) continue;
      const asking = 1 + [...this.#peers.values()].filter(({ load }) => load[model] !== undefined).length;
      for (const [label, shared] of servers) {
        const member = members.get(label);
        if (member !== undefined) this.#servers?.heard(fleet, member, shared, asking, nowMs);
      }
    }
  }

  #sumLoads(): void {
    for (const [model, fleet] of this.#fleetsOf()) {
      const loads = [...this.#peers.values()].map((peer) => ({
        load: peer.load[model] ?? {},
        waits: peer.waiting[model] ?? {},
      }));
      for (const member of fleet.members) {
        let [running, waitingTokens, waiting] = [0, 0, 0];
        for (const { load, waits } of loads) {
          const reported = load[member.label];
          running += reported?.[0] ?? 0;
          waitingTokens += reported?.[1] ?? 0;
          waiting += waits[member.label] ?? 0;
        }
        fleet.loadedElsewhere(member, running, waitingTokens, waiting);
      }
    }
  }
}

/** Counts each time that the peer leaves the backend out, and each return, once, however often it is repeated. */
function takeHealth(
  { health }: Peer,
  name: string,
  { ejections, ejectedForMs }: { readonly ejections: number; readonly ejectedForMs: number },
  { out, back }: { readonly out: () => void; readonly back: () => void },
): void {
  const before = health.get(name);
  const isOut = ejectedForMs > 0;
  if (isOut && ejections > (before?.ejections ?? 0)) out();
  if (!isOut && before?.isOut === true) back();
  health.set(name, { ejections, isOut });
}

/** Empty for a backend that is idle and was never left out: most of a large fleet. */
function reportOf(member: BackendLoad & Named, nowMs: number): readonly (readonly [string, ReportedLoad])[] {
  const { label, running, waitingTokens, measuredTokensPerSecond, measurements, ejections, ejectedUntilMs } = member;
  if (running === 0 && ejections === 0) return [];
  // After its pause it is on probation until it has answered, so it still counts as out.
  const ejectedForMs = ejectedUntilMs === 0 ? 0 : Math.max(1, Math.ceil(ejectedUntilMs - nowMs));
  const tokensPerSecond = measurements === 0 ? 0 : Math.round(measuredTokensPerSecond);
  return [[label, [running, Math.round(waitingTokens), tokensPerSecond, ejections, ejectedForMs]]];
}

/** `undefined`: not a valid report. */
function reportIn(text: string): Report | undefined {
  if (text.length > messageCharactersMax) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!isRecord(value) || value['v'] !== 1) return undefined;
  const { load, prompts, waiting, servers, messages } = value;
  if (!isRecordOf(load, isLoads) || !isRecordOf(prompts, isPrompts)) return undefined;
  return {
    ...{ v: 1, load, prompts },
    waiting: isRecordOf(waiting, (item) => isRecordOf(item, isCount)) ? waiting : {},
    servers: isRecordOf(servers, (item) => isRecordOf(item, isSharedReport)) ? servers : {},
    messages: isRecordOf(messages, isEnds) ? messages : {},
  };
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const isRecordOf = <Item>(value: unknown, is: (item: unknown) => item is Item): value is Record<string, Item> =>
  isRecord(value) && Object.values(value).every(is);

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

const isLoads = (value: unknown): value is Record<string, ReportedLoad> => isRecordOf(value, isLoad);

const isLoad = (value: unknown): value is ReportedLoad =>
  Array.isArray(value) && value.length === 5 && value.every(isCount);

const isPrompts = (value: unknown): value is readonly ReportedPrompt[] =>
  Array.isArray(value) && value.length <= promptsMax && value.every(isPrompt);

const isEnds = (value: unknown): value is readonly NewEnds[] =>
  Array.isArray(value) &&
  value.length <= endsMax &&
  value.every((ends) => Array.isArray(ends) && ends.length <= prefixesMax && ends.every(Number.isSafeInteger));

const isPrompt = (value: unknown): value is ReportedPrompt => {
  if (!Array.isArray(value) || value.length !== 3) return false;
  const [label, hashes, tokens] = value as readonly unknown[];
  return (
    typeof label === 'string' &&
    Array.isArray(hashes) &&
    Array.isArray(tokens) &&
    hashes.length === tokens.length &&
    hashes.length <= prefixesMax &&
    hashes.every((hash) => Number.isSafeInteger(hash)) &&
    tokens.every((count) => Number.isSafeInteger(count) && count >= 0)
  );
};
