import { generationReceipts } from '../account-api/generation-object.ts';
import type { GenerationReceipt } from '../account-api/generation-object.ts';
import { refusedObject } from '../account-api/routes/errors.ts';
import { accountMeant, olderThanKept, OperationError } from '../accounts/operation.ts';
import { dollars } from '../platform/dollars.ts';
import type { Context } from './context.ts';
import { reading } from './database.ts';
import { table } from './output.ts';
import type { Line } from './output.ts';

/** Shows the receipt of a request, in the form of GET /v1/generation. */
export async function showReceipt(
  context: Context,
  { account }: { readonly account?: string },
  id = '',
): Promise<number> {
  const { receipts, refused } = await reading(context, async ({ repositories, now }) => {
    const accountId = await accountMeant(account, repositories);
    const rows = await repositories.findUsage({ accountId, id, now: now });
    const found = rows.length > 0 ? [] : await repositories.listRefused({ accountId, id, limit: 20 });
    if (rows.length === 0 && found.length === 0)
      throw new OperationError(
        `${accountId} has no request ${id}${await olderThanKept(repositories)}. List them with: tokenhouse usage --account ${accountId}`,
      );
    return { receipts: await generationReceipts(accountId, rows, repositories), refused: found.map(refusedObject) };
  });
  if (refused.length > 0) {
    context.print.result(refused.length === 1 ? refused[0] : refused, refused.flatMap(refusedLines));
    return 0;
  }
  const several =
    receipts.length === 1
      ? []
      : [`${receipts.length} requests have the id ${id}, newest first; each has its own ledger id.`, ''];
  context.print.result(receipts.length === 1 ? receipts[0] : receipts, [
    ...several,
    ...receipts.flatMap((receipt, index) => [...(index === 0 ? [] : ['']), ...linesOf(receipt)]),
  ]);
  return 0;
}

/** A request that was refused has no receipt. */
const refusedLines = (refused: ReturnType<typeof refusedObject>): readonly string[] => [
  `${refused.request_id} · ${refused.model ?? 'no model'} · refused with HTTP ${refused.status}`,
  `key      ${refused.key_id}`,
  `time     ${new Date(refused.created_at * 1000).toISOString().replace('.000Z', 'Z')}`,
  `code     ${refused.error_code}`,
  ...(refused.message === null ? [] : [`said     ${refused.message}`]),
  `when     ${refused.meaning}`,
  `do       ${refused.remedy}`,
  'charge   nothing',
];

function linesOf(receipt: GenerationReceipt): readonly Line[] {
  const time = (seconds: number): string => new Date(seconds * 1000).toISOString().replace('.000Z', 'Z');
  const words = [
    receipt.api_type,
    receipt.streamed ? 'streamed' : 'whole',
    ...(receipt.service_tier === 'default'
      ? []
      : [`tier ${receipt.service_tier}${receipt.price_multiple === null ? '' : ` ×${receipt.price_multiple}`}`]),
    ...(receipt.zdr === true ? ['zero data retention'] : []),
    ...(receipt.tags.length === 0 ? [] : [`labels ${receipt.tags.join(', ')}`]),
  ];
  const refund = receipt.ledger.filter(({ type }) => type === 'refund');
  return [
    `${receipt.request_id} · ${receipt.model}${askedAs(receipt)} · ${words.join(' · ')}`,
    `ledger   ${receipt.id}`,
    `key      ${receipt.key_id}${receipt.key_name === null ? '' : ` (${receipt.key_name})`}`,
    `time     ${time(receipt.created_at)} to ${time(receipt.ended_at)}, ${receipt.total_ms} ms`,
    ...(receipt.latency_ms === null ? [] : [`         first token after ${receipt.latency_ms} ms`]),
    `end      ${receipt.ending}${receipt.finish_reason === null ? '' : `, ${receipt.finish_reason}`}${receipt.error_code === null ? '' : `, ${receipt.error_code}`}`,
    ...(receipt.error === null ? [] : [`when     ${receipt.error.meaning}`, `do       ${receipt.error.remedy}`]),
    ...receipt.warnings.map(({ code, meaning }) => `warning  ${code}: ${meaning}`),
    ...queueLines(receipt.queue),
    ...(receipt.fallbacks ?? []).map(fallbackLine),
    ...(receipt.attempts ?? []).flatMap(attemptLines),
    '',
    ...table(
      ['', 'tokens', 'per million', 'microcents'],
      receipt.lines.map((line) => [
        line.item.replace('_', ' '),
        line.tokens,
        dollars(BigInt(line.microcents_per_million_tokens)),
        line.microcents,
      ]),
    ),
    '',
    `sum      ${receipt.sum_microcents} microcents, rounded up once: ${dollars(BigInt(receipt.list_cost_microcents))}`,
    `hold     ${dollars(BigInt(receipt.hold_microcents))}`,
    `charge   ${dollars(BigInt(receipt.total_cost_microcents))}`,
    ...refund.map(
      ({ id, amount_microcents: amount, created_at: at }) =>
        `refund   ${dollars(BigInt(amount))}, ${time(at)}, ledger ${id}`,
    ),
    `why      ${receipt.explanation}`,
  ];
}

/** Absent in older services. */
const askedAs = ({ asked_as: name }: { readonly asked_as?: string | null }): string =>
  name === null || name === undefined ? '' : ` (asked for as ${name})`;

/** How long it waited for a slot, and for whom. */
function queueLines(queue: GenerationReceipt['queue'] | undefined): readonly string[] {
  if (queue === null || queue === undefined) return [];
  const { tiers, own, others } = queue.ahead;
  const expected = queue.expected_ms === null ? '' : `, expected ${queue.expected_ms} ms`;
  return [
    `queue    waited ${queue.wait_ms} ms for a slot${expected}`,
    `         behind ${tiers} of tiers before its own, ${own} of its account, ${others} of others`,
  ];
}

/** A line about why this model did not serve it: `instead  of gpt-large, which failed with no_healthy_backends`. */
const fallbackLine = ({ model, reason, skipped }: NonNullable<GenerationReceipt['fallbacks']>[number]): string =>
  `instead  of ${model}, which ${skipped ? `was not tried: ${reason}` : `failed with ${reason}`}`;

/** Absent in older services. */
const foreignPart = (
  foreign: { readonly running: number; readonly tokens_waiting: number } | null | undefined,
): string =>
  foreign === null || foreign === undefined
    ? ''
    : ` (of others: ${foreign.tokens_waiting} waiting, ${foreign.running} running)`;

const hedgeWords = {
  second: 'asked as the second',
  second_stopped: 'asked as the second and stopped when the first gave text',
  overtaken: 'stopped when the second gave text',
} as const;

/** The outcome of an attempt, and below it why this backend was chosen, in lines of at most 80 columns. */
function attemptLines({
  backend,
  model,
  error_code: failed,
  hedge,
  chosen,
}: NonNullable<GenerationReceipt['attempts']>[number]): readonly string[] {
  const why =
    chosen === null
      ? []
      : [
          `first token expected after ${chosen.expected_ms} ms; rank ${chosen.rank}, one of ${chosen.of}`,
          `${chosen.tokens_uncached} tokens to read at ${chosen.tokens_per_second} tokens/s, ${chosen.tokens_cached} cached`,
          `${chosen.tokens_waiting} tokens waiting there, ${chosen.running} running${foreignPart(chosen.foreign)}`,
        ];
  return [
    `backend  ${backend}${model === null ? '' : ` of ${model}`}${hedge === null ? '' : `, ${hedgeWords[hedge]}`}${failed === null ? '' : `, failed with ${failed}`}`,
    ...why.map((line) => `         ${line}`),
  ];
}
