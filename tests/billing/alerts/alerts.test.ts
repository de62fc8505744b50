/** Alerts by a clock of the test: what fires, how often, when it ends, and who is notified. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TestContext } from 'node:test';

import { nextState } from '../../../src/billing/alerts/alerts.ts';
import { operate } from '../../../src/accounts/operations.ts';
import { startOfPeriod } from '../../../src/platform/calendar/periods.ts';
import { publicIdOf, uuidMaker } from '../../../src/platform/ids/uuid.ts';
import type { UsageRow } from '../../../src/store/ledger.ts';
import { chargeback, grant, usage } from '../../store/fixture.ts';
import { openScene, startReceiver } from '../../notifications/webhooks/receiver.ts';

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
/** A Wednesday. */
const noon = Date.UTC(2026, 10, 18, 12);
const cent = 1_000_000n;

interface AlertShown {
  readonly id: string;
  readonly state: string;
  readonly observed_microcents: number | null;
}

async function sceneOf(t: TestContext) {
  const receiver = await startReceiver(t);
  const scene = await openScene(t, [receiver.host]);
  const { ask, host, clock } = scene;
  clock.now = noon;
  await ask('POST', '/v1/webhook_endpoints', { url: receiver.url });
  const { ledger } = host.services.operations;
  /** A minute goes by: looked, told, sent. What has come since the last time, by type. */
  const minute = async (later = 60_000): Promise<readonly string[]> => {
    clock.now += later;
    const before = receiver.received.length;
    for (const job of ['alerts', 'notices', 'webhooks']) assert.equal(await host.jobs.run(job), true, job);
    return receiver.received.slice(before).map(({ body }) => (JSON.parse(body) as { readonly type: string }).type);
  };
  const spend = async (cents: bigint, changes: Partial<UsageRow> = {}): Promise<void> => {
    const requestId = uuidMaker(() => clock.now)();
    const times = { startedAt: clock.now, endedAt: clock.now };
    const row = { requestId, publicId: publicIdOf(requestId), ...times, ...changes };
    await ledger.settle(usage('acct_a', cents * cent, row));
  };
  const alert = async (body: object): Promise<AlertShown> => {
    const made = await ask('POST', '/v1/spend_alerts', body);
    assert.equal(made.status, 201, JSON.stringify(made.json));
    return made.json as AlertShown;
  };
  const shown = async (id: string) => (await ask('GET', `/v1/spend_alerts/${id}`)).json as AlertShown;
  await ledger.transfer({ ...grant('acct_a', 1_000n * cent), at: clock.now });
  return { ...scene, receiver, minute, spend, alert, shown, ledger };
}

test('the states of an alert', () => {
  const rows: readonly (readonly ['ok' | 'fired', string | null, boolean, string])[] = [
    ['ok', null, false, 'stays'],
    ['ok', null, true, 'fires'],
    ['ok', 'today', true, 'stays'],
    ['ok', 'yesterday', true, 'fires'],
    ['ok', 'today', false, 'stays'],
    ['fired', 'today', true, 'stays'],
    ['fired', 'yesterday', true, 'stays'],
    ['fired', 'today', false, 'ends'],
    ['fired', 'yesterday', false, 'ends'],
  ];
  for (const [state, firedDay, isOver, expected] of rows)
    assert.equal(nextState({ state, firedDay }, { isOver, day: 'today' }), expected, `${state} ${firedDay} ${isOver}`);
});

test('spending of a day: fires at the threshold, once, and ends with the day; by mail and webhook', async (t) => {
  const { minute, spend, alert, shown, clock, host, receiver } = await sceneOf(t);
  const { id } = await alert({
    name: 'Day <b>',
    threshold_amount: 10,
    interval: 'day',
    recipients: { addresses: ['ops@example.org'] },
  });
  await spend(9n);
  assert.deepEqual(await minute(), []);
  await spend(1n);
  assert.deepEqual(await minute(), ['spend_alert.fired']);
  assert.deepEqual([(await shown(id)).state, (await shown(id)).observed_microcents], ['fired', 10_000_000]);
  await spend(50n);
  assert.deepEqual(await minute(), []);
  assert.deepEqual(await minute(hourMs), []);
  assert.deepEqual(
    host.mails.map(({ to, subject, kind, accountId }) => [to, subject, kind, accountId]),
    [['ops@example.org', 'Spending alert: Day <b>', 'spend_alert', 'acct_a']],
  );
  assert.match(host.mails[0]!.text, /has spent \$0\.10 in the current day/);
  clock.now = startOfPeriod(noon, 'day', 'UTC') + dayMs;
  assert.deepEqual(await minute(), ['spend_alert.ended']);
  assert.deepEqual(await minute(), []);
  const fired = JSON.parse(receiver.received[0]!.body) as { readonly data: object };
  assert.deepEqual(fired.data, {
    alert_id: id,
    name: 'Day <b>',
    threshold_microcents: 10_000_000,
    runway_days: null,
    interval: 'day',
    subject: { kind: 'account' },
    observed_microcents: 10_000_000,
  });
});

test('spending of a key, of a label, and over a month, is of that alone', async (t) => {
  const { minute, spend, alert, shown, clock } = await sceneOf(t);
  clock.now = noon - 10 * dayMs;
  await spend(7n, { keyId: 'key_1', tags: '["team-a"]' });
  clock.now = noon;
  const key = await alert({ threshold_amount: 10, interval: 'month', subject: { kind: 'key', id: 'key_1' } });
  const tag = await alert({ threshold_amount: 10, interval: 'week', subject: { kind: 'tag', id: 'team-a' } });
  const other = await alert({ threshold_amount: 10, interval: 'month', subject: { kind: 'key', id: 'key_2' } });
  await spend(3n, { keyId: 'key_1', tags: '["team-a","b"]' });
  assert.deepEqual(await minute(), ['spend_alert.fired']);
  assert.deepEqual(
    [await shown(key.id), await shown(tag.id), await shown(other.id)].map((one) => [
      one.state,
      one.observed_microcents,
    ]),
    [
      ['fired', 10_000_000],
      ['ok', 3_000_000],
      ['ok', 0],
    ],
  );
});

test('a balance that falls, is mended and falls again the same day is notified of once that day, and again the next', async (t) => {
  const { minute, alert, ledger, clock, host } = await sceneOf(t);
  await alert({ kind: 'balance', threshold_amount: 500, recipients: { addresses: ['a@example.org'] } });
  const fall = () => ledger.transfer({ ...chargeback('acct_a', 600n * cent), at: clock.now });
  const mend = () => ledger.transfer({ ...grant('acct_a', 600n * cent), at: clock.now });
  assert.deepEqual(await minute(), []);
  await fall();
  assert.deepEqual(await minute(), ['balance.low']);
  await mend();
  assert.deepEqual(await minute(), ['balance.ok']);
  await fall();
  assert.deepEqual(await minute(), [], 'once a day');
  assert.deepEqual(await minute(dayMs), ['balance.low']);
  await mend();
  assert.deepEqual(await minute(), ['balance.ok']);
  assert.deepEqual(
    host.mails.map(({ subject }) => subject.split(':')[0]),
    ['Low balance', 'Balance is sufficient again', 'Low balance', 'Balance is sufficient again'],
  );
});

test('days of runway, at the rate of the last seven', async (t) => {
  const { minute, spend, alert, ledger, clock } = await sceneOf(t);
  await alert({ kind: 'balance', runway_days: 10 });
  assert.deepEqual(await minute(), [], 'nothing spent lasts for ever');
  // 70 cents in a week are 10 a day: the 930 that are left last for 93 days.
  await spend(70n);
  assert.deepEqual(await minute(), []);
  await ledger.transfer({ ...chargeback('acct_a', 830n * cent), at: clock.now });
  assert.deepEqual(await minute(), [], '100 cents last for exactly 10 days');
  await spend(1n);
  assert.deepEqual(await minute(), ['balance.low']);
  assert.deepEqual(await minute(8 * dayMs), ['balance.ok'], 'a week without spending');
});

test('what was noted is sent by the successor of a process that died, and no mail has another id', async (t) => {
  const { alert, spend, host, clock } = await sceneOf(t);
  await alert({ threshold_amount: 1, interval: 'day', recipients: { addresses: ['a@example.org', 'b@example.org'] } });
  await spend(2n);
  await host.jobs.run('alerts');
  const { repositories } = host.services.operations;
  const [notice, ...others] = await repositories.listNotices({ after: '', limit: 10 });
  assert.deepEqual(others, []);
  // Told and not forgotten: as a process that is killed between the two leaves it.
  await host.services.events.emit('acct_a', 'spend_alert.fired', JSON.parse(notice!.data) as object, notice!.id);
  clock.now += 60_000;
  await host.jobs.run('notices');
  assert.deepEqual(await repositories.listNotices({ after: '', limit: 10 }), []);
  assert.deepEqual(
    host.mails.map(({ idempotencyKey }) => idempotencyKey),
    [`${notice!.id}:a@example.org`, `${notice!.id}:b@example.org`],
  );
  const { id } = (await repositories.listWebhookEndpoints({ accountId: 'acct_a', limit: 1 }))[0]!;
  const deliveries = await repositories.listDeliveries({ accountId: 'acct_a', endpointId: id, limit: 10 });
  assert.deepEqual(
    deliveries.map(({ eventId }) => eventId),
    [notice!.id],
  );
});

test('a rule that makes no sense is refused with what repairs it; others cannot see or change it', async (t) => {
  const { ask, alert, host } = await sceneOf(t);
  for (const [body, param] of [
    [{ interval: 'day' }, 'threshold_amount'],
    [{ threshold_amount: 1, interval: null }, 'interval'],
    [{ threshold_amount: 1, runway_days: 3 }, 'runway_days'],
    [{ threshold_amount: 1, subject: { kind: 'key' } }, 'subject.id'],
    [{ threshold_amount: 1, subject: { kind: 'account', id: 'x' } }, 'subject.id'],
    [{ kind: 'balance' }, 'threshold_amount'],
    [{ kind: 'balance', threshold_amount: 1, runway_days: 1 }, 'threshold_amount'],
    [{ kind: 'balance', threshold_amount: 1, interval: 'day' }, 'interval'],
    [{ threshold_amount: 0 }, 'threshold_amount'],
    [{ threshold_amount: 1, currency: 'EUR' }, 'currency'],
    [{ threshold_amount: 1, enforcement: 'x' }, 'enforcement'],
  ] as const) {
    const { status, json } = await ask('POST', '/v1/spend_alerts', body);
    // 422: the schema of the field; 400: what belongs together.
    assert.ok(status === 400 || status === 422, JSON.stringify(body));
    assert.equal((json as { error: { param: string } }).error.param, param, JSON.stringify(body));
  }
  const { id } = await alert({ threshold_amount: 5 });
  await host.account('acct_b');
  const other = await host.key('acct_b', 'owner');
  for (const [method, body] of [['GET'], ['PATCH', { name: 'x' }], ['DELETE']] as const)
    assert.equal((await ask(method, `/v1/spend_alerts/${id}`, body, other)).status, 404, method);
  const viewer = await host.key('acct_a', 'viewer');
  assert.equal((await ask('GET', `/v1/spend_alerts/${id}`, undefined, viewer)).status, 200);
  assert.equal((await ask('DELETE', `/v1/spend_alerts/${id}`, undefined, viewer)).status, 403);
  const changed = await ask('PATCH', `/v1/spend_alerts/${id}`, { threshold_amount: 7 });
  assert.equal((changed.json as { threshold_amount: number }).threshold_amount, 7);
  assert.equal((await ask('DELETE', `/v1/spend_alerts/${id}`)).status, 204);
  assert.deepEqual((await ask('GET', '/v1/spend_alerts')).json, { object: 'list', data: [], has_more: false });
});

test('periods begin where the account is', () => {
  const at = Date.UTC(2026, 2, 31, 23, 30); // in Berlin: Wednesday, 1 April, 01:30
  assert.equal(startOfPeriod(at, 'day', 'Europe/Berlin'), Date.UTC(2026, 2, 31, 22));
  assert.equal(startOfPeriod(at, 'week', 'Europe/Berlin'), Date.UTC(2026, 2, 29, 22));
  assert.equal(startOfPeriod(at, 'month', 'Europe/Berlin'), Date.UTC(2026, 2, 31, 22));
  assert.equal(startOfPeriod(at, 'day', 'UTC'), Date.UTC(2026, 2, 31));
  assert.equal(startOfPeriod(at, 'week', 'UTC'), Date.UTC(2026, 2, 30));
  assert.equal(startOfPeriod(at, 'month', 'UTC'), Date.UTC(2026, 2, 1));
});

test('the spending of a member: counted over their keys, told to members by their addresses', async (t) => {
  const { ask, alert, clock, host, minute, shown, spend } = await sceneOf(t);
  const { operations } = host.services;
  const input = { kind: 'create_owner', email: 'olga@example.org', name: 'Olga', passwordHash: 'none' } as const;
  const made = await operate(input, operations);
  const userId = made.userId;
  const keyOf = async (body: object): Promise<string> =>
    ((await ask('POST', '/v1/keys', { name: 'k', ...body })).json as { readonly data: { readonly id: string } }).data
      .id;
  const [first, second, strange] = [
    await keyOf({ user_id: userId }),
    await keyOf({ user_id: userId }),
    await keyOf({}),
  ];
  const { id } = await alert({
    kind: 'spend',
    subject: { kind: 'member', id: userId },
    threshold_amount: 10,
    interval: 'day',
    recipients: { members: [userId] },
  });
  await spend(50n, { keyId: strange });
  await spend(6n, { keyId: first });
  assert.deepEqual(await minute(), []);
  assert.equal((await shown(id)).observed_microcents, Number(6n * cent));
  await spend(5n, { keyId: second });
  assert.deepEqual(await minute(), ['spend_alert.fired']);
  const mails = host.mails.filter(({ to }) => to === 'olga@example.org');
  assert.equal(mails.length, 1);
  clock.now += dayMs;
  assert.deepEqual(await minute(), ['spend_alert.ended']);
});
