/** The APIs as clients of a world use them: what they send, and what they understand of an answer. */
import type { Answer } from './clients.ts';
import type { Scheduler } from './scheduler.ts';

export const apis = ['chat', 'completions', 'messages', 'responses', 'embeddings'] as const;
export type Api = (typeof apis)[number];

export interface Wanted {
  readonly api: Api;
  /** As it is named in the request. */
  readonly model: string;
  readonly tokensMax: number | undefined;
  readonly isStreamed: boolean;
  readonly tier: Tier | undefined;
}

export type Tier = 'default' | 'priority' | 'flex';

/** What a client is shown of its usage. */
export interface ShownUsage {
  readonly prompt: number;
  readonly completion: number;
}

/** What a client knows at the end of a request. */
export type Seen =
  | { readonly kind: 'answer'; readonly usage: ShownUsage; readonly text: string; readonly tier: string | undefined }
  | { readonly kind: 'error'; readonly code: string }
  | { readonly kind: 'part' };

export const pathOf: Readonly<Record<Api, string>> = {
  chat: '/v1/chat/completions',
  completions: '/v1/completions',
  messages: '/v1/messages',
  responses: '/v1/responses',
  embeddings: '/v1/embeddings',
};

/** Letters alone, so that it is one token of any estimate. Servers answer a request with its mark first. */
export const markOf = (number: number): string =>
  `m${String(number).replace(/\d/g, (digit) => String.fromCharCode(97 + Number(digit)))}`;

export const promptOf = (mark: string): string => `${mark} says this`;
export const markIn = (body: string): string => /(m[a-j]+) says this/.exec(body)![1]!;

/** The number in a vector by which a client knows its own. */
export const vectorMark = (mark: string): number =>
  [...mark].reduce((sum, letter) => sum * 10 + letter.charCodeAt(0) - 97, 0);

export function bodyOf({ api, model, tokensMax, isStreamed, tier }: Wanted, mark: string): object {
  const prompt = promptOf(mark);
  const usual = {
    model,
    ...(isStreamed ? { stream: true } : {}),
    ...(tier === undefined ? {} : { service_tier: tier }),
  };
  const counted = isStreamed ? { stream_options: { include_usage: true } } : {};
  const most = tokensMax === undefined ? {} : { max_tokens: tokensMax };
  switch (api) {
    case 'chat':
      return { ...usual, ...counted, ...most, messages: [{ role: 'user', content: prompt }] };
    case 'completions':
      return { ...usual, ...counted, ...most, prompt };
    case 'messages':
      return {
        model,
        ...(isStreamed ? { stream: true } : {}),
        max_tokens: tokensMax ?? 64,
        messages: [{ role: 'user', content: prompt }],
      };
    case 'responses':
      return {
        ...usual,
        ...(tokensMax === undefined ? {} : { max_output_tokens: tokensMax }),
        input: prompt,
        store: false,
      };
    case 'embeddings':
      return { model, input: prompt };
  }
}

export function chosenOf(scheduler: Scheduler, models: readonly string[]): Wanted {
  const api = scheduler.pick(['chat', 'chat', 'chat', ...apis] as const);
  return {
    api,
    model: api === 'embeddings' ? 'e' : scheduler.pick(models),
    tokensMax: scheduler.pick(api === 'responses' ? [undefined, 16, 64] : [undefined, 4, 16, 64]),
    isStreamed: api !== 'embeddings' && scheduler.chance(0.6),
    tier:
      api === 'messages' || api === 'embeddings'
        ? undefined
        : scheduler.pick([undefined, undefined, 'priority', 'flex', 'default'] as const),
  };
}

/** Usage as the APIs write it. */
interface Usage {
  readonly prompt_tokens?: number;
  readonly completion_tokens?: number;
  readonly input_tokens?: number;
  readonly output_tokens?: number;
  readonly service_tier?: string;
}

interface Failure {
  readonly code?: string;
  readonly type?: string;
}

interface Content {
  readonly text?: string;
}

/** A whole answer of any API, or an event of a stream. */
interface Body {
  readonly type?: string;
  readonly usage?: Usage | null;
  readonly error?: Failure | null;
  readonly code?: string;
  readonly service_tier?: string;
  readonly choices?: readonly {
    readonly text?: string;
    readonly message?: { readonly content: string };
    readonly delta?: { readonly content?: string };
  }[];
  readonly content?: readonly Content[];
  readonly output?: readonly { readonly content?: readonly Content[] }[];
  readonly data?: readonly { readonly embedding: readonly number[] }[];
  readonly delta?: string | { readonly text?: string };
  readonly response?: Body;
  readonly message?: Body;
}

const shown = (usage: Usage): ShownUsage => ({
  prompt: usage.prompt_tokens ?? usage.input_tokens ?? 0,
  completion: usage.completion_tokens ?? usage.output_tokens ?? 0,
});

const codeOf = ({ code, type }: Failure): string => code ?? type ?? 'nothing';

const textsOf = (contents: readonly Content[] | undefined): string =>
  (contents ?? []).map(({ text }) => text ?? '').join('');

function textOf({ choices, content, output, data }: Body): string {
  // Vectors are brought to length 1.
  if (data !== undefined) return String(Math.round((0.5 * data[0]!.embedding[0]!) / data[0]!.embedding[1]!));
  if (output !== undefined) return output.map((one) => textsOf(one.content)).join('');
  if (content !== undefined) return textsOf(content);
  return (choices ?? []).map(({ text, message }) => text ?? message?.content ?? '').join('');
}

export function seenOf(answer: Answer): Seen {
  const { status, body, isWhole } = answer;
  if (status === 0) return { kind: 'part' };
  if (/^(?:event|data|:)/.test(body)) return streamSeen(body);
  if (!isWhole) return { kind: 'part' };
  const whole = JSON.parse(body) as Body;
  if (status !== 200) return { kind: 'error', code: whole.error === undefined ? String(status) : codeOf(whole.error!) };
  return { kind: 'answer', usage: shown(whole.usage!), text: textOf(whole), tier: whole.service_tier };
}

/** What comes last decides, also where a connection ends just behind it. */
function streamSeen(body: string): Seen {
  let usage: ShownUsage | undefined;
  let text = '';
  let tier: string | undefined;
  for (const [, data = ''] of body.matchAll(/^data: (.*)\n\n/gm)) {
    if (data === '[DONE]') continue;
    const event = JSON.parse(data) as Body;
    const failure = event.error ?? event.response?.error ?? (event.type === 'error' ? event : undefined);
    if (failure !== undefined) return { kind: 'error', code: codeOf(failure) };
    tier = event.service_tier ?? event.response?.service_tier ?? tier;
    for (const choice of event.choices ?? []) text += choice.delta?.content ?? choice.text ?? '';
    if (event.type === 'response.output_text.delta') text += event.delta as string;
    if (event.type === 'content_block_delta') text += (event.delta as Content).text ?? '';
    // The first events of a message and of a response have no final usage.
    const final = /^(?:response\.(?:completed|incomplete)|message_delta)$/.test(event.type ?? 'message_delta');
    const own = event.usage ?? event.response?.usage;
    if (final && own !== undefined && own !== null) usage = shown(own);
  }
  return usage === undefined ? { kind: 'part' } : { kind: 'answer', usage, text, tier };
}
