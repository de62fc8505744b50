import Type from 'typebox';
import type { Static } from 'typebox';

import { alertsMax } from '../../billing/alerts/alerts.ts';
import { ApiError } from '../../platform/errors.ts';
import type { Alert, AlertSetting } from '../../store/repositories/alerts.ts';
import { hexOf } from '../../notifications/webhooks/events.ts';
import { notThere } from '../input.ts';
import { centsMax, wholeOf, pageLimit, listOf, pageQuery, listSchema, secondsOf, secondsOrNull } from '../wire.ts';
import { everyRole, mayPay, Reply, route } from '../route.ts';
import type { AccountRoute } from '../route.ts';

const microcentsPerCent = 1_000_000n;
const text = (lengthMax: number, description: string) =>
  Type.String({ minLength: 1, maxLength: lengthMax, pattern: '^[^\\x00-\\x1f\\x7f]+$', description });

const fields = {
  name: text(100, 'The name of the alert in mails.'),
  threshold_amount: Type.Union([Type.Integer({ minimum: 1, maximum: centsMax }), Type.Null()], {
    description:
      'In cents. A `spend` alert fires when this much is spent in the interval, a `balance` alert when less than this is left.',
  }),
  runway_days: Type.Union([Type.Integer({ minimum: 1, maximum: 365 }), Type.Null()], {
    description:
      'For `balance` alerts, instead of an amount: fires when the credit lasts fewer days at the rate of the last seven.',
  }),
  interval: Type.Union([Type.Literal('day'), Type.Literal('week'), Type.Literal('month'), Type.Null()], {
    description: 'For `spend` alerts; weeks begin on Monday.',
  }),
  subject: Type.Object(
    {
      kind: Type.Union(['account', 'key', 'member', 'tag'].map((kind) => Type.Literal(kind))),
      id: Type.Optional(text(255, 'Id of the key or the member, or the tag.')),
    },
    { additionalProperties: false, description: 'Whose spending is watched; the whole account when left out.' },
  ),
  recipients: Type.Object(
    {
      members: Type.Optional(Type.Array(text(100, 'Id of a member.'), { maxItems: 20 })),
      addresses: Type.Optional(
        Type.Array(
          Type.String({
            maxLength: 254,
            pattern: '^[^\\s@<>,;:"()\\[\\]\\\\\\x00-\\x1f\\x7f]{1,64}@[A-Za-z0-9-]+(\\.[A-Za-z0-9-]+)+$',
          }),
          { maxItems: 5 },
        ),
      ),
    },
    { additionalProperties: false, description: 'Who gets mail.' },
  ),
  webhook: Type.Boolean({ description: 'Whether webhook endpoints are notified too; true when left out.' }),
};

const kind = Type.Union([Type.Literal('spend'), Type.Literal('balance')]);

const alertSchema = Type.Object({
  id: Type.String({ description: '`alrt_…`' }),
  object: Type.Literal('spend_alert'),
  kind,
  ...fields,
  currency: Type.Literal('USD'),
  state: Type.Union([Type.Literal('ok'), Type.Literal('fired')]),
  observed_microcents: Type.Union([Type.Integer(), Type.Null()], {
    description: 'The amount spent in the interval, or left, at the last check; null: not checked yet.',
  }),
  looked_at: Type.Union([Type.Integer(), Type.Null()]),
  fired_at: Type.Union([Type.Integer(), Type.Null()]),
  ended_at: Type.Union([Type.Integer(), Type.Null()]),
  created_at: Type.Integer({ description: 'Unix seconds.' }),
});

const changeable = {
  name: Type.Optional(fields.name),
  threshold_amount: Type.Optional(fields.threshold_amount),
  runway_days: Type.Optional(fields.runway_days),
  interval: Type.Optional(fields.interval),
  subject: Type.Optional(fields.subject),
  recipients: Type.Optional(fields.recipients),
  webhook: Type.Optional(fields.webhook),
  currency: Type.Optional(Type.Literal('USD')),
};
const changeSchema = Type.Object(changeable, { additionalProperties: false });
type Change = Static<typeof changeSchema>;

const params = Type.Object({ id: Type.String({ pattern: '^alrt_[0-9a-f]{32}$' }) });
const idOf = ({ id }: { readonly id: string }): string => id;
const common = { tag: 'Alerts' } as const;

export const alertRoutes: readonly AccountRoute[] = [
  route({
    ...common,
    access: everyRole,
    method: 'get',
    path: '/v1/spend_alerts',
    operationId: 'listSpendAlerts',
    summary: 'List alerts',
    description: 'Alerts on spending and on the balance, newest first.',
    query: Type.Object(pageQuery, { additionalProperties: false }),
    answers: [{ status: 200, description: 'A page of alerts.', schema: listSchema(alertSchema) }],
    handle: async ({ account, query: { limit: asked, after }, services }) => {
      const limit = pageLimit(asked);
      return listOf(
        await services.operations.repositories.listAlerts({
          accountId: account.id,
          limit: limit + 1,
          ...(after === undefined ? {} : { after }),
        }),
        limit,
        shown,
        idOf,
      );
    },
  }),
  route({
    ...common,
    access: mayPay,
    method: 'post',
    path: '/v1/spend_alerts',
    operationId: 'createSpendAlert',
    summary: 'Add an alert',
    description: `At most ${alertsMax} of an account. It is checked every minute, fires at most once a day, and ends by itself.`,
    body: Type.Object({ kind: Type.Optional(kind), ...changeable }, { additionalProperties: false }),
    answers: [{ status: 201, description: 'The alert.', schema: alertSchema }],
    errors: ['http_409', 'unsupported_value'],
    handle: async (call) => {
      const { account, body, services } = call;
      const { repositories, newId, now } = services.operations;
      const { kind: wanted = 'spend', ...change } = body;
      const setting = checked(changed(blank(wanted), change));
      const id = `alrt_${hexOf(newId())}`;
      if (!(await repositories.addAlert({ id, accountId: account.id, setting, at: now(), max: alertsMax })))
        throw new ApiError('http_409', `An account has at most ${alertsMax} alerts. Delete one first.`);
      const alert = shown(found(await repositories.getAlert({ accountId: account.id, id })));
      await call.audit({ action: 'spend_alert.create', target: id, after: alert });
      return alert;
    },
  }),
  route({
    ...common,
    access: everyRole,
    method: 'get',
    path: '/v1/spend_alerts/{id}',
    operationId: 'getSpendAlert',
    summary: 'Get an alert',
    description: 'With what was seen at the last look.',
    params,
    answers: [{ status: 200, description: 'The alert.', schema: alertSchema }],
    errors: ['http_404'],
    handle: async ({ account, params: { id }, services }) =>
      shown(found(await services.operations.repositories.getAlert({ accountId: account.id, id }))),
  }),
  route({
    ...common,
    access: mayPay,
    method: 'patch',
    path: '/v1/spend_alerts/{id}',
    operationId: 'changeSpendAlert',
    summary: 'Change an alert',
    description: 'Fields that are left out stay. The alert starts again, as if it had never fired.',
    params,
    body: changeSchema,
    answers: [{ status: 200, description: 'The alert as it is now.', schema: alertSchema }],
    errors: ['http_404', 'unsupported_value'],
    handle: async (call) => {
      const { account, body, params: at, services } = call;
      const { repositories, now } = services.operations;
      const before = found(await repositories.getAlert({ accountId: account.id, id: at.id }));
      const setting = checked(changed(before, body));
      const after = found(await repositories.changeAlert({ accountId: account.id, id: at.id, setting, at: now() }));
      await call.audit({ action: 'spend_alert.change', target: at.id, before: shown(before), after: shown(after) });
      return shown(after);
    },
  }),
  route({
    ...common,
    access: mayPay,
    method: 'delete',
    path: '/v1/spend_alerts/{id}',
    operationId: 'deleteSpendAlert',
    summary: 'Delete an alert',
    description: 'Notifications that it has sent are not recalled.',
    params,
    answers: [{ status: 204, description: 'The alert is deleted.' }],
    errors: ['http_404'],
    handle: async (call) => {
      const { account, params: at, services } = call;
      if (!(await services.operations.repositories.deleteAlert({ accountId: account.id, id: at.id }))) throw notThere();
      await call.audit({ action: 'spend_alert.delete', target: at.id });
      return new Reply(204, {});
    },
  }),
];

const blank = (of: AlertSetting['kind']): AlertSetting => ({
  kind: of,
  name: of === 'spend' ? 'Spending' : 'Balance',
  thresholdMicrocents: null,
  runwayDays: null,
  per: of === 'spend' ? 'month' : null,
  subjectKind: 'account',
  subject: null,
  recipients: { members: [], addresses: [] },
  isWebhook: true,
});

function changed(before: AlertSetting, change: Change): AlertSetting {
  const { threshold_amount: cents, recipients, subject } = change;
  return {
    kind: before.kind,
    name: change.name ?? before.name,
    thresholdMicrocents:
      cents === undefined ? before.thresholdMicrocents : cents === null ? null : BigInt(cents) * microcentsPerCent,
    runwayDays: change.runway_days === undefined ? before.runwayDays : change.runway_days,
    per: change.interval === undefined ? before.per : change.interval,
    subjectKind: subject === undefined ? before.subjectKind : (subject.kind as AlertSetting['subjectKind']),
    subject: subject === undefined ? before.subject : (subject.id ?? null),
    recipients:
      recipients === undefined
        ? before.recipients
        : { members: recipients.members ?? [], addresses: recipients.addresses ?? [] },
    isWebhook: change.webhook ?? before.isWebhook,
  };
}

/** Checks that fields that belong together are given together. */
function checked(setting: AlertSetting): AlertSetting {
  const refuse = (param: string, message: string): never => {
    throw new ApiError('unsupported_value', message, { param });
  };
  const { kind: of, thresholdMicrocents, runwayDays, per, subjectKind, subject } = setting;
  if (of === 'spend') {
    if (thresholdMicrocents === null) refuse('threshold_amount', 'A spending alert needs threshold_amount, in cents.');
    if (runwayDays !== null) refuse('runway_days', 'Only a balance alert takes runway_days.');
    if (per === null) refuse('interval', 'A spending alert needs an interval: day, week or month.');
    if ((subjectKind === 'account') !== (subject === null))
      refuse('subject.id', 'Give the id of the key or member, or the tag; scope account takes no id.');
  } else {
    if ((thresholdMicrocents === null) === (runwayDays === null))
      refuse('threshold_amount', 'A balance alert needs either threshold_amount, in cents, or runway_days.');
    if (per !== null) refuse('interval', 'A balance alert takes no interval.');
    if (subjectKind !== 'account' || subject !== null) refuse('subject', 'A balance alert is for the whole account.');
  }
  return setting;
}

function found(alert: Alert | undefined): Alert {
  if (alert === undefined) throw notThere();
  return alert;
}

const shown = (alert: Alert) => ({
  id: alert.id,
  object: 'spend_alert' as const,
  kind: alert.kind,
  name: alert.name,
  threshold_amount: alert.thresholdMicrocents === null ? null : wholeOf(alert.thresholdMicrocents / microcentsPerCent),
  runway_days: alert.runwayDays,
  interval: alert.per,
  subject: alert.subject === null ? { kind: alert.subjectKind } : { kind: alert.subjectKind, id: alert.subject },
  recipients: alert.recipients,
  webhook: alert.isWebhook,
  currency: 'USD' as const,
  state: alert.state,
  observed_microcents: alert.observedMicrocents === null ? null : wholeOf(alert.observedMicrocents),
  looked_at: secondsOrNull(alert.lookedAt),
  fired_at: secondsOrNull(alert.firedAt),
  ended_at: secondsOrNull(alert.endedAt),
  created_at: secondsOf(alert.createdAt),
});
