import { filterOf, limitOption, lists, loads, meantAccount, onlyAccount, option, word } from '../command-row.ts';
import type { CommandRow, Listing } from '../command-row.ts';
import type { Context } from '../context.ts';
import { calendarMonth, refused, wholeNumber } from '../option.ts';
import { table, timeText } from '../output.ts';
import type { Line } from '../output.ts';
import type { SumGroup, UsageSum } from '../../store/repositories/usage-totals.ts';
import { dollars } from '../../platform/dollars.ts';

/** In the form of GET /v1/admin/audit. */
export const auditCommands: readonly CommandRow[] = [
  lists({
    name: 'list',
    about: 'list all changes, newest first',
    takes: [onlyAccount, limitOption(1000, 50)],
    api: ({ account, limit }: Listing) => ({ path: '/v1/admin/audit', query: { account_id: account }, limit }),
    read: async ({ repositories }, options: Listing) => {
      const { auditObject } = await import('../../account-api/audit-object.ts');
      return (await repositories.listAudit(filterOf(options))).map(auditObject);
    },
    columns: {
      at: ({ at }) => timeText(at),
      account: ({ account_id: account }) => account ?? '-',
      who: ({ actor }) => (actor.id === null ? actor.kind : (actor.name ?? actor.id)),
      action: ({ action }) => action,
      of: ({ target }) => target ?? '-',
      outcome: ({ outcome }) => outcome,
    },
  }),
];

/** In the form of GET /v1/admin/outbox. */
export const mailCommands: readonly CommandRow[] = [
  lists({
    name: 'list',
    about: 'list the newest mails and their state',
    takes: [limitOption(100, 20, 'maximum of mails')],
    api: ({ limit }: Listing) => ({ path: '/v1/admin/outbox', limit }),
    read: async ({ repositories }, { limit }: Listing) => {
      const { mailObject } = await import('../../account-api/mail-object.ts');
      return (await repositories.listMail({ limit })).map(mailObject);
    },
    columns: {
      id: ({ id }) => id,
      at: ({ created_at: at }) => timeText(at),
      to: ({ to }) => to,
      subject: ({ subject }) => subject,
      kind: ({ kind }) => kind,
      state: ({ state, last_error: error }) => (error === null ? state : `${state}: ${error}`),
      attempts: ({ attempts }) => attempts,
    },
  }),
  {
    name: 'show',
    about: 'show a mail that was not sent, with its text',
    takes: [word('<mail-id>', 'id of the mail, from mail list')],
    run: async (context: Context, _options: object, id: string) => {
      const [{ mailObject }, { reading }] = await Promise.all([
        import('../../account-api/mail-object.ts'),
        import('../database.ts'),
      ]);
      const row = await reading(context, ({ repositories }) => repositories.getMail({ id }));
      if (row === undefined) throw await refused(`There is no mail ${id}. List them with: tokenhouse mail list`);
      const mail = { ...mailObject(row), text: row.body };
      context.print.result(mail, [
        `To: ${mail.to}`,
        `Date: ${timeText(mail.created_at)}`,
        `Subject: ${mail.subject}`,
        '',
        mail.text ?? `(${mail.state}, so its text is no longer kept)`,
      ]);
      return 0;
    },
  },
];

/** In the form of GET /v1/webhook_endpoints. */
export const webhookCommands: readonly CommandRow[] = [
  {
    name: 'list',
    about: 'list endpoints with their newest deliveries',
    takes: [onlyAccount, limitOption(100, 20, 'maximum of endpoints')],
    run: async (context: Context, options: Listing) => {
      const [{ deliveryObject, endpointObject }, { reading }] = await Promise.all([
        import('../../account-api/webhook-objects.ts'),
        import('../database.ts'),
      ]);
      const endpoints = await reading(context, async ({ repositories }) =>
        Promise.all(
          (await repositories.listWebhookEndpoints(filterOf(options))).map(async (endpoint) => {
            const { id: endpointId, accountId } = endpoint;
            const deliveries = await repositories.listDeliveries({ accountId, endpointId, limit: 5 });
            return { ...endpointObject(endpoint), account_id: accountId, deliveries: deliveries.map(deliveryObject) };
          }),
        ),
      );
      context.print.result(
        endpoints,
        endpoints.flatMap((endpoint): readonly Line[] => [
          `${endpoint.id}  ${endpoint.account_id}  ${endpoint.status}  ${endpoint.url}`,
          ...table(
            ['  delivery', 'type', 'state', 'tries', 'answer', 'failure'],
            endpoint.deliveries.map(({ id, type, state, tries, response_status: status, failure }) => [
              `  ${id}`,
              type,
              state,
              tries,
              status,
              failure,
            ]),
          ),
        ]),
      );
      return 0;
    },
  },
  loads('test', 'send a ping to an endpoint', [word('<endpoint-id>', 'id from webhooks list')], () =>
    import('../ask-running.ts').then(({ testWebhook }) => testWebhook),
  ),
  loads('replay', 'send a delivery again', [word('<delivery-id>', 'id from webhooks list')], () =>
    import('../ask-running.ts').then(({ replayWebhook }) => replayWebhook),
  ),
];

interface ErrorsOptions {
  readonly by: 'code' | 'model' | 'key' | 'day';
  readonly account?: string;
  readonly days: number;
}

/** A tier from before there were tiers is empty: not known. */
const costGroups = ['model', 'key', 'account', 'day', 'tag', 'tier', 'ending'] as const satisfies readonly SumGroup[];

interface CostsOptions {
  readonly by: SumGroup | 'month';
  readonly account?: string;
  readonly days: number;
  /** From and to in milliseconds, from the option's reader. */
  readonly month?: { readonly from: number; readonly to: number };
}

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;

export const usageCommands: readonly CommandRow[] = [
  loads(
    'usage',
    'list the newest requests with their cost, and the balance',
    [
      onlyAccount,
      option('--tag <tag>', 'only requests with this tag, to a dedicated model'),
      limitOption(1000, 20, 'maximum of requests'),
      option('--csv', 'print all requests as CSV, without a limit'),
      option('--parquet <file>', 'write all requests as a Parquet file, of all accounts or one').conflicts('csv'),
      option('--month <month>', 'of --csv and --parquet, a calendar month in UTC, for example 2027-06', calendarMonth),
    ],
    () => import('../usage.ts').then(({ showUsage }) => showUsage),
  ),
  lists({
    name: 'refusals',
    about: 'list the last refused requests, newest first, with what they were told',
    takes: [onlyAccount, limitOption(1000, 20)],
    api: ({ account, limit }: Listing) => ({ path: '/v1/refusals', account, limit }),
    read: async ({ repositories }, options: Listing) => {
      const { refusedObject } = await import('../../account-api/routes/errors.ts');
      return (await repositories.listRefused(filterOf(options))).map(refusedObject);
    },
    columns: {
      at: ({ created_at: at }) => timeText(at),
      request: ({ request_id: id }) => id,
      key: ({ key_id: key }) => key,
      model: ({ model }) => model,
      code: ({ error_code: code }) => code,
      message: ({ message, meaning }) => message ?? meaning,
    },
  }),
  {
    name: 'errors',
    about: 'count refused and failed requests',
    takes: [
      option('--by <what>', 'group by', undefined, 'code').choices(['code', 'model', 'key', 'day']),
      meantAccount,
      option('--days <number>', 'how many days back', wholeNumber(1, 92), 30),
    ],
    run: async (context: Context, { by, account, days }: ErrorsOptions) => {
      const [{ reading }, { accountMeant }] = await Promise.all([
        import('../database.ts'),
        import('../../accounts/operation.ts'),
      ]);
      const rows = await reading(context, async ({ repositories, now }) => {
        const accountId = await accountMeant(account, repositories);
        const to = Math.floor(now / dayMs) * dayMs + dayMs;
        const bounds =
          by === 'day'
            ? Array.from({ length: days + 1 }, (_, day) => to - (days - day) * dayMs)
            : [to - days * dayMs, to];
        const sums = await repositories.sumErrors({ accountId, bounds, by: by === 'day' ? [] : [by] });
        return sums.map(({ bucket, refusals, failures, ...of }) => ({
          [by]: by === 'day' ? new Date(bounds[bucket]!).toISOString().slice(0, 10) : of[by],
          refused: refusals,
          failed: failures,
        }));
      });
      context.print.result(
        rows,
        table(
          [by, 'refused', 'failed'],
          rows.map((row) => [row[by] as string | null, row.refused as number, row.failed as number]),
        ),
      );
      return 0;
    },
  },
  lists({
    name: 'revenue',
    about: 'sum what was charged across accounts, what it cost, and the margin, in a calendar month',
    takes: [
      option('--by <what>', 'group by; month: the twelve months up to it', undefined, 'model').choices([
        'model',
        'account',
        'tier',
        'month',
      ]),
      option('--month <month>', 'a calendar month in UTC, for example 2027-06; this month by default', calendarMonth),
    ],
    api: ({ by, month }: RevenueOptions) => ({
      path: '/v1/admin/revenue',
      query: { by, month: month && new Date(month.from).toISOString().slice(0, 7) },
      limit: undefined,
    }),
    read: async ({ repositories, config, now }, { by, month }: RevenueOptions) => {
      const { monthOf, revenueOf } = await import('../../account-api/revenue.ts');
      return await revenueOf(repositories, config.models, { ...(month ?? monthOf(now)), by });
    },
    columns: {
      group: ({ group }) => group || null,
      name: ({ name }) => name,
      requests: ({ requests }) => requests,
      prompt: ({ prompt_tokens: tokens }) => tokens,
      cached: ({ cached_tokens: tokens }) => tokens,
      output: ({ completion_tokens: tokens }) => tokens,
      revenue: ({ revenue_microcents: amount }) => dollars(BigInt(amount)),
      uncharged: ({ uncharged_microcents: amount }) => dollars(BigInt(amount)),
      cost: ({ cost_microcents: amount }) => (amount === null ? undefined : dollars(BigInt(amount))),
      margin: ({ margin_microcents: amount }) => (amount === null ? undefined : dollars(BigInt(amount))),
    },
  }),
  lists({
    name: 'history',
    about: 'show what the service did in the last hour, day or week: requests, errors, times and tokens',
    takes: [
      option('--span <span>', 'by minute, quarter of an hour or hour', undefined, 'hour').choices([
        'hour',
        'day',
        'week',
      ]),
      option('--by <what>', 'tell apart', undefined, 'total').choices(['total', 'model', 'backend']),
      option('--model <model>', 'only this model'),
      option('--backend <name>', 'only this backend'),
    ],
    api: (options: HistoryOptions) => ({ path: '/v1/admin/history', query: { ...options }, limit: undefined }),
    read: async ({ repositories, now }, options: HistoryOptions) => {
      const { historyOf } = await import('../../account-api/history-object.ts');
      return await historyOf(repositories, { ...options, now });
    },
    columns: {
      at: ({ start_time: at }) => timeText(at),
      model: ({ model }) => model,
      backend: ({ backend }) => backend,
      requests: ({ requests }) => requests,
      refused: ({ refused: count }) => count,
      failed: ({ failed }) => failed,
      'first token p50': ({ first_token_p50_ms: ms }) => ms && `${ms} ms`,
      p95: ({ first_token_p95_ms: ms }) => ms && `${ms} ms`,
      waited: ({ waited }) => waited,
      mean: ({ wait_mean_ms: ms }) => ms && `${ms} ms`,
      prompt: ({ prompt_tokens: tokens }) => tokens,
      output: ({ completion_tokens: tokens }) => tokens,
      'per second': ({ tokens_per_second: speed }) => speed,
    },
  }),
  {
    name: 'costs',
    about: 'sum the usage and cost of requests',
    takes: [
      option('--by <what>', 'group by', undefined, 'model').choices([...costGroups, 'month']),
      onlyAccount,
      option('--days <number>', 'how many days back', wholeNumber(1, 3660), 30),
      option('--month <month>', 'a calendar month in UTC instead, for example 2027-06', calendarMonth).conflicts(
        'days',
      ),
    ],
    run: async (context: Context, { by, account, days, month }: CostsOptions) => {
      const { reading } = await import('../database.ts');
      const sums = await reading(context, async ({ repositories, now }) => {
        const to = now + 1;
        // Full hours: for old requests only hourly sums are kept.
        const from = Math.floor((to - days * dayMs) / hourMs) * hourMs;
        const span = { ...(month ?? { from, to }), ...(account === undefined ? {} : { accountId: account }) };
        if (by === 'month') return byMonth(await repositories.sumUsage({ ...span, by: ['day'] }));
        return await repositories.sumUsage({ ...span, by: [by] });
      });
      const rows = sums.map((sum) => ({
        [by]: by === 'day' ? dayOf(sum) : sum.groups[0] || null,
        requests: sum.requests,
        prompt_tokens: sum.promptTokens,
        cached_tokens: sum.cachedTokens,
        completion_tokens: sum.completionTokens,
        reasoning_tokens: sum.reasoningTokens,
        cost_microcents: sum.costMicrocents,
        uncharged_microcents: sum.unchargedMicrocents,
      }));
      context.print.result(
        rows,
        table(
          [by, 'requests', 'prompt', 'cached', 'output', 'cost'],
          rows.map((row) => [
            row[by] as string | null,
            row.requests,
            row.prompt_tokens,
            row.cached_tokens,
            row.completion_tokens,
            dollars(row.cost_microcents),
          ]),
        ),
      );
      return 0;
    },
  },
];

/** In the form of GET /v1/admin/history. */
interface HistoryOptions {
  readonly span: 'hour' | 'day' | 'week';
  readonly by: 'total' | 'model' | 'backend';
  readonly model?: string;
  readonly backend?: string;
}

/** What is left of what was charged, in the form of GET /v1/admin/revenue. */
interface RevenueOptions {
  readonly by: 'model' | 'account' | 'tier' | 'month';
  readonly month?: { readonly from: number; readonly to: number };
}

const dayOf = ({ groups }: UsageSum): string => new Date(Number(groups[0])).toISOString().slice(0, 10);

/** Sums of days → of their calendar months. */
function byMonth(days: readonly UsageSum[]): readonly UsageSum[] {
  const months = new Map<string, UsageSum>();
  for (const day of days) {
    const month = dayOf(day).slice(0, 7);
    const sum = months.get(month);
    months.set(month, {
      groups: [month],
      requests: (sum?.requests ?? 0) + day.requests,
      promptTokens: (sum?.promptTokens ?? 0) + day.promptTokens,
      cachedTokens: (sum?.cachedTokens ?? 0) + day.cachedTokens,
      completionTokens: (sum?.completionTokens ?? 0) + day.completionTokens,
      reasoningTokens: (sum?.reasoningTokens ?? 0) + day.reasoningTokens,
      costMicrocents: (sum?.costMicrocents ?? 0n) + day.costMicrocents,
      unchargedMicrocents: (sum?.unchargedMicrocents ?? 0n) + day.unchargedMicrocents,
    });
  }
  return [...months.values()].toSorted((a, b) => (a.groups[0]! < b.groups[0]! ? -1 : 1));
}
