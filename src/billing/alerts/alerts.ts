import { dateText } from '../../platform/calendar/months.ts';
import { startOfPeriod } from '../../platform/calendar/periods.ts';
import { uuidText } from '../../platform/ids/uuid.ts';
import type { Alert } from '../../store/repositories/alerts.ts';
import type { Notice } from '../../store/repositories/notices.ts';
import type { Repositories } from '../../store/repositories/repositories.ts';

export interface AlertServices {
  readonly repositories: Repositories;
  /** Name of the account's time zone. */
  readonly timeZoneOf: (accountId: string) => Promise<string>;
  /** Generates UUIDv7s. */
  readonly newId: () => Uint8Array;
  readonly now: () => number;
}

/** Maximum alerts per account. */
export const alertsMax = 50;
const alertsAtOnce = 100;
const dayMs = 86_400_000;
const minuteMs = 60_000;
/** Days of spending from which the runway is projected. */
export const runwayOverDays = 7;

/** The result of checking an alert. */
export interface Seen {
  /** Spending of the period, or the balance. */
  readonly observedMicrocents: bigint;
  readonly isOver: boolean;
  /** The day of the check in the account's time zone: `2026-10-31`. */
  readonly day: string;
}

/**
 * The next state of an alert.
 *
 * - `ok`, the threshold is passed, and it has not fired that day: it fires (`fired`, reported).
 * - `ok`, passed, and it has already fired that day: no change until the next day.
 * - `fired`, still passed: no change; its recipients know.
 * - `fired`, no longer passed, because credit was added or a new period began: it ends (`ok`, reported).
 */
export function nextState(
  alert: Pick<Alert, 'state'> & { readonly firedDay: string | null },
  { isOver, day }: Pick<Seen, 'isOver' | 'day'>,
): 'fires' | 'ends' | 'stays' {
  if (alert.state === 'fired') return isOver ? 'stays' : 'ends';
  return isOver && alert.firedDay !== day ? 'fires' : 'stays';
}

/** Checks every alert of every active account, and records the notifications to send. */
export class Alerts {
  readonly #services: AlertServices;
  #after = '';

  constructor(services: AlertServices) {
    this.#services = services;
  }

  /** Processes one batch; true: there are more. */
  async look(): Promise<boolean> {
    const { repositories } = this.#services;
    const alerts = await repositories.alertsToLookAt({ after: this.#after, limit: alertsAtOnce });
    // Alerts of one account often need the same sum.
    const known = new Map<string, Promise<bigint>>();
    for (const alert of alerts) await this.#lookAt(alert, known);
    const isMore = alerts.length === alertsAtOnce;
    this.#after = isMore ? alerts.at(-1)!.id : '';
    return isMore;
  }

  async #lookAt(alert: Alert, known: Map<string, Promise<bigint>>): Promise<void> {
    const { repositories, timeZoneOf, now } = this.#services;
    const timeZone = await timeZoneOf(alert.accountId);
    const at = now();
    const seen =
      alert.kind === 'spend'
        ? await this.#spending(alert, timeZone, at, known)
        : await this.#balance(alert, timeZone, at, known);
    if (seen === undefined) return;
    const firedDay = alert.firedAt === null ? null : dateText(alert.firedAt, timeZone);
    const next = nextState({ state: alert.state, firedDay }, seen);
    await repositories.noteLook({
      alert,
      state: next === 'fires' ? 'fired' : next === 'ends' ? 'ok' : alert.state,
      observedMicrocents: seen.observedMicrocents,
      firedAt: next === 'fires' ? at : alert.firedAt,
      endedAt: next === 'ends' ? at : next === 'fires' ? null : alert.endedAt,
      at,
      notice: next === 'stays' ? null : this.#notice(alert, next, seen, at),
    });
  }

  async #spending(
    alert: Alert,
    timeZone: string,
    at: number,
    known: Map<string, Promise<bigint>>,
  ): Promise<Seen | undefined> {
    const { accountId, subjectKind, subject, per, thresholdMicrocents } = alert;
    if (per === null || thresholdMicrocents === null) return undefined;
    const from = startOfPeriod(at, per, timeZone);
    const spent = await this.#spent(known, at, {
      accountId,
      from,
      by: subjectKind === 'member' ? 'user' : subjectKind,
      ...(subject === null ? {} : { id: subject }),
    });
    return {
      observedMicrocents: spent,
      isOver: spent >= thresholdMicrocents,
      day: dateText(at, timeZone),
    };
  }

  async #balance(
    alert: Alert,
    timeZone: string,
    at: number,
    known: Map<string, Promise<bigint>>,
  ): Promise<Seen | undefined> {
    const { accountId, thresholdMicrocents, runwayDays } = alert;
    const account = await this.#services.repositories.getAccount({ accountId });
    if (account === undefined) return undefined;
    const balance = account.balanceMicrocents;
    const day = dateText(at, timeZone);
    if (thresholdMicrocents !== null)
      return { observedMicrocents: balance, isOver: balance < thresholdMicrocents, day };
    if (runwayDays === null) return undefined;
    // Rounded to whole minutes, so that alerts of one account share the sum.
    const from = Math.floor(at / minuteMs) * minuteMs - runwayOverDays * dayMs;
    const spent = await this.#spent(known, at, { accountId, from, by: 'account' });
    // balance ÷ (spent ÷ 7) < days, without a division: with no spending it lasts for ever.
    const isOver = spent > 0n && balance * BigInt(runwayOverDays) < spent * BigInt(runwayDays);
    return { observedMicrocents: balance, isOver, day };
  }

  #spent(
    known: Map<string, Promise<bigint>>,
    at: number,
    request: {
      readonly accountId: string;
      readonly from: number;
      readonly by: 'account' | 'key' | 'user' | 'tag';
      readonly id?: string;
    },
  ): Promise<bigint> {
    const name = JSON.stringify(request);
    let sum = known.get(name);
    // One minute extra, because clocks of replicas may differ.
    if (sum === undefined)
      known.set(name, (sum = this.#services.repositories.spendSince({ ...request, to: at + minuteMs })));
    return sum;
  }

  #notice(alert: Alert, next: 'fires' | 'ends', seen: Seen, at: number): Notice {
    const types = {
      spend: { fires: 'spend_alert.fired', ends: 'spend_alert.ended' },
      balance: { fires: 'balance.low', ends: 'balance.ok' },
    } as const;
    return {
      id: `evt_${uuidText(this.#services.newId())}`,
      accountId: alert.accountId,
      type: types[alert.kind][next],
      data: JSON.stringify({
        alert_id: alert.id,
        name: alert.name,
        threshold_microcents: alert.thresholdMicrocents === null ? null : Number(alert.thresholdMicrocents),
        runway_days: alert.runwayDays,
        interval: alert.per,
        subject: alert.subject === null ? { kind: alert.subjectKind } : { kind: alert.subjectKind, id: alert.subject },
        observed_microcents: Number(seen.observedMicrocents),
      }),
      recipients: alert.recipients,
      isWebhook: alert.isWebhook,
      at,
    };
  }
}
