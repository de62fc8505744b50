import type { Usage } from '../../generation/event.ts';
import { note, type BackendLoad } from './backend-load.ts';
import {
  alikeRatio,
  BackendQuality,
  compared,
  groupsMax,
  hasWrongCall,
  trialCell,
  type AnswerTimes,
  type Compared,
  type Conversation,
  type Findings,
} from './backend-quality.ts';

/** Called when a backend is found to be worse than its peers (its `quality.worse` says by what), and when it is not any more. */
export type OnCompared<Member> = (member: Member, change: 'worse' | 'recovered') => void;

const lookEveryMs = 2_000;
/**
 * A backend is called worse only if equal ones would differ as much with a probability below 1e-10. Each is looked at 16 million times a year
 * at most, by three kinds of failures over two times, so a fleet of eight has one false alarm in thirteen years at most, whatever its traffic.
 */
const evidenceMin = Math.log(1e10);
/** A smaller excess is not worth leaving capacity unused, however certain it is. */
const excessMin = 0.02;
/** A backend that is worse has recovered when its answers are this much likelier for one that is like its peers. */
const reliefMin = Math.log(100);
/** What is left of the weight of a backend that is worse. It gets this part of its fair share at least, so that its recovery is seen. */
const weightLeft = 1 / 8;
/** Makes it the best for one request. */
const weightDue = 1e6;
/** The part of the time that may go into holding arguments against schemas, where a step takes a microsecond. */
const checkMsPerStep = 0.02;

/**
 * Keeps what the answers of a model's backends are like, and compares each with its peers of the same rank. One that is worse beyond chance
 * keeps an eighth of its weight until it is better. docs/decisions/066-worse-than-peers.md has the figures and their reasons.
 */
export class Comparison<Member extends BackendLoad> {
  readonly #membersNow: () => readonly Member[];
  readonly #onCompared: OnCompared<Member>;
  #worse: readonly Member[] = [];
  #lookedMs = -Infinity;
  #checkFromMs = -Infinity;

  constructor(membersNow: () => readonly Member[], onCompared: OnCompared<Member>) {
    this.#membersNow = membersNow;
    this.#onCompared = onCompared;
    this.membersChanged();
  }

  membersChanged(): void {
    this.#worse = this.#membersNow().filter(({ quality }) => quality?.worse !== undefined);
  }

  /** An answer is complete. */
  answered(member: Member, usage: Usage, times: AnswerTimes, group: number, nowMs: number): void {
    const quality = (member.quality ??= new BackendQuality());
    quality.answered(usage, times, nowMs);
    this.#tried(member, quality, 'errors', false, group, undefined, nowMs);
  }

  /** The backend has failed a request by its own fault. */
  failed(member: Member, group: number, conversation: Conversation, nowMs: number): void {
    const quality = (member.quality ??= new BackendQuality());
    quality.failed(nowMs);
    // Of one that is left out it is known already.
    if (member.ejectedUntilMs === 0) this.#tried(member, quality, 'errors', true, group, conversation, nowMs);
  }

  /** What was found in a complete answer; all calls of an answer are one trial. */
  found(member: Member, findings: Findings, group: number, conversation: Conversation, nowMs: number): void {
    const quality = (member.quality ??= new BackendQuality());
    quality.found(findings, nowMs);
    if (findings.calls > 0) this.#tried(member, quality, 'calls', hasWrongCall(findings), group, conversation, nowMs);
    if (findings.forms > 0) this.#tried(member, quality, 'forms', findings.formsMisfit > 0, group, conversation, nowMs);
  }

  /** Whether there is time to hold arguments against a schema now: the same for all members, whose shares would differ otherwise. */
  mayCheck(nowMs: number): boolean {
    return nowMs >= this.#checkFromMs;
  }

  checked(steps: number, nowMs: number): void {
    this.#checkFromMs = nowMs + steps * checkMsPerStep;
  }

  /** A request was placed there. A backend that is worse gets one of a few, wherever prompts are cached. */
  placed(member: Member): void {
    for (const worse of this.#worse) {
      const quality = worse.quality!;
      if (worse === member) {
        quality.passed = 0;
        weigh(worse, weightLeft);
      } else if (++quality.passed >= this.#membersNow().length / weightLeft - 1) weigh(worse, weightDue);
    }
  }

  #tried(
    member: Member,
    quality: BackendQuality,
    by: Compared,
    isFailed: boolean,
    group: number,
    conversation: Conversation,
    nowMs: number,
  ): void {
    quality.tried(by, isFailed, group, conversation, nowMs);
    if (quality.worse !== undefined && quality.worse.relief >= reliefMin) this.#recovered(member);
    if (nowMs - this.#lookedMs < lookEveryMs || (!isFailed && this.#worse.length === 0)) return;
    this.#lookedMs = nowMs;
    this.#look(nowMs);
  }

  #look(nowMs: number): void {
    const members = this.#membersNow();
    for (const { quality } of members) quality?.advance(nowMs);
    for (const rank of new Set(members.map((member) => member.rank))) {
      const ofRank = members.filter((member) => member.rank === rank);
      for (const member of ofRank) if (member.quality?.worse !== undefined) this.#lookAgain(member, ofRank);
      const peers = ofRank.filter(({ quality }) => quality !== undefined && quality.worse === undefined);
      // One at a time: the others are then compared without it.
      const worst = worstOf(peers);
      if (worst !== undefined) this.#found(worst, nowMs);
    }
  }

  #found({ member, by, share, peersShare }: Excess<Member>, nowMs: number): void {
    const quality = member.quality!;
    quality.worse = { by, sinceMs: nowMs, share, peersShare, relief: 0 };
    quality.passed = 0;
    weigh(member, weightLeft);
    this.membersChanged();
    this.#onCompared(member, 'worse');
  }

  /** Its peers may have gone, or be no better any more. */
  #lookAgain(member: Member, ofRank: readonly Member[]): void {
    const worse = member.quality!.worse!;
    const peers = ofRank.filter(({ quality }) => quality?.worse === undefined);
    if (peers.length === 0) return this.#recovered(member);
    const sums = sumsOf(peers, worse.by, 'lately');
    const trials = sums.reduce((sum, count, cell) => (cell % 2 === 0 ? sum + count : sum), 0);
    const failures = sums.reduce((sum, count, cell) => (cell % 2 === 1 ? sum + count : sum), 0);
    if (trials === 0) return;
    worse.peersShare = failures / trials;
    if (worse.peersShare * alikeRatio >= worse.share) this.#recovered(member);
  }

  #recovered(member: Member): void {
    const quality = member.quality!;
    // What it failed before would be held against it for an hour.
    quality.forget(quality.worse!.by);
    quality.worse = undefined;
    weigh(member, 1);
    this.membersChanged();
    this.#onCompared(member, 'recovered');
  }
}

function weigh(member: BackendLoad, factor: number): void {
  member.weight = member.weightWritten * factor;
  note(member);
}

interface Excess<Member> {
  readonly member: Member;
  readonly by: Compared;
  readonly share: number;
  readonly peersShare: number;
  readonly evidence: number;
}

const times = ['lately', 'hour'] as const;

/** The member that differs most from its peers, if one does beyond chance. */
function worstOf<Member extends BackendLoad>(members: readonly Member[]): Excess<Member> | undefined {
  let worst: Excess<Member> | undefined;
  if (members.length < 2) return undefined;
  for (const by of compared)
    for (const time of times) {
      const all = sumsOf(members, by, time);
      if (!hasFailures(all)) continue;
      for (const member of members) {
        const excess = excessOf(trialsOf(member.quality!, by, time), all);
        if (excess === undefined || excess.evidence < (worst?.evidence ?? evidenceMin)) continue;
        if (excess.share - excess.peersShare >= excessMin) worst = { member, by, ...excess };
      }
    }
  return worst;
}

/** Trials and failures of each group of accounts, in turn. */
type Trials = Uint32Array;

function trialsOf(quality: BackendQuality, by: Compared, time: (typeof times)[number]): Trials {
  const from = trialCell(by, 0);
  return quality[time].sums.subarray(from, from + 2 * groupsMax);
}

function sumsOf(members: readonly BackendLoad[], by: Compared, time: (typeof times)[number]): Trials {
  const sums = new Uint32Array(2 * groupsMax);
  for (const { quality } of members) {
    if (quality === undefined) continue;
    const own = trialsOf(quality, by, time);
    for (let cell = 0; cell < sums.length; cell++) sums[cell]! += own[cell]!;
  }
  return sums;
}

const hasFailures = (trials: Trials): boolean => trials.some((count, cell) => cell % 2 === 1 && count > 0);

/**
 * How much more a backend fails than its peers, and how certain that is. `own` and `all` are trials and failures of each group in turn; all
 * includes its own.
 *
 * Given how many answers of a group failed, equal backends get theirs among them by drawing without replacement. The sum of such draws is
 * at least as concentrated as independent ones with their mean probability (Hoeffding 1956, 1963), so a share of x or more of the K failures
 * instead of the expected q has at most the probability exp(-K (x ln(x/q) + (1-x) ln((1-x)/(1-q)))): exact where x is 1, an upper bound
 * elsewhere, for any number of answers. `evidence` is its negated logarithm. A group that has only used this backend, or never, is left out.
 */
export function excessOf(
  own: Trials,
  all: Trials,
): { readonly share: number; readonly peersShare: number; readonly evidence: number } | undefined {
  let [trials, failures, failuresAll, failuresDue, failuresAsPeers] = [0, 0, 0, 0, 0];
  for (let cell = 0; cell < own.length; cell += 2) {
    const [ownTrials, allTrials] = [own[cell]!, all[cell]!];
    if (ownTrials === 0 || ownTrials === allTrials) continue;
    const [ownFailures, allFailures] = [own[cell + 1]!, all[cell + 1]!];
    trials += ownTrials;
    failures += ownFailures;
    failuresAll += allFailures;
    failuresDue += (allFailures * ownTrials) / allTrials;
    failuresAsPeers += (ownTrials * (allFailures - ownFailures)) / (allTrials - ownTrials);
  }
  if (failures <= failuresDue) return undefined;
  const [x, q] = [failures / failuresAll, failuresDue / failuresAll];
  const rest = x === 1 ? 0 : (1 - x) * Math.log((1 - x) / (1 - q));
  return {
    share: failures / trials,
    peersShare: failuresAsPeers / trials,
    evidence: failuresAll * (x * Math.log(x / q) + rest),
  };
}
