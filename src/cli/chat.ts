import { createInterface } from 'node:readline/promises';

import { dollars } from '../platform/dollars.ts';
import { costMicrocents } from '../catalog/pricing.ts';
import type { Prices } from '../catalog/pricing.ts';
import { readEnvironment } from '../config/environment.ts';
import { secondsInWords } from './amount.ts';
import { withoutControls } from './output.ts';
import { createTemporaryKey } from './temporary-key.ts';
import { noKey, notOurs, reach, refusal } from './chat-request.ts';
import { streamAnswer } from './chat-stream.ts';
import type { Answer, AnswerReader, ChatRequest, Message } from './chat-stream.ts';
import { CommandFailure } from './command-failure.ts';
import type { BareContext, Context } from './context.ts';
import { exitCodes, explain, failureOf } from './failure.ts';
import { readContext } from './read-context.ts';
import { namedService, serviceHere } from './service-here.ts';

interface ChatOptions {
  readonly url?: string;
  readonly key?: string;
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly system?: string;
}

const interruptedCode = 130;
const promptBytesMax = 50 * 1024 * 1024;

/**
 * `tokenhouse chat`: the answer goes to standard output as it arrives, everything about it to standard error. One question from the
 * arguments or from standard input; a conversation when there is neither and a user is at the terminal.
 */
export async function chat(
  context: BareContext,
  options: ChatOptions,
  first?: string,
  rest: unknown = [],
): Promise<number> {
  const environment = readEnvironment();
  const url = namedService(options.url, environment);
  const here = url === undefined ? await runningHere(context) : undefined;
  const service = url ?? here!.url;
  const given = options.key ?? environment.variable('TOKENHOUSE_KEY');
  const temporary =
    given === undefined && here?.isRunning === true ? await createTemporaryKey(here.context) : undefined;
  try {
    const key = given ?? temporary?.key;
    // With the key: models that only its account may use are listed for it alone.
    const cards = await readCards(service, key);
    return await talkAbout({ context, options, service, key, cards, first, rest: rest as readonly string[] });
  } finally {
    await temporary?.revoke();
  }
}

interface Meant {
  readonly context: BareContext;
  readonly options: ChatOptions;
  readonly service: string;
  /** undefined: the user is asked for it. */
  readonly key: string | undefined;
  readonly cards: readonly Card[];
  readonly first: string | undefined;
  readonly rest: readonly string[];
}

async function talkAbout({ context, options, service, key, cards, first, rest }: Meant): Promise<number> {
  const { model, words } = modelMeant(cards, first, rest);
  const card = cards.find(({ id }) => id === model) ?? cards[0]!;
  const isConversation = words === '' && process.stdin.isTTY;
  const question = words !== '' || isConversation ? words : await readAll(process.stdin);
  if (!isConversation && question.trim() === '') {
    throw new CommandFailure({
      what: ['There is nothing to ask: standard input is empty.'],
      why: 'chat needs a question',
      repair: ['tokenhouse chat "What is the capital of France?"'],
      exitCode: exitCodes.usage,
    });
  }
  const talk: Talk = {
    context,
    request: {
      url: service,
      key: key ?? (await askForKey()),
      model: card.id,
      ...(options.maxTokens === undefined ? {} : { maxTokens: options.maxTokens }),
      ...(options.temperature === undefined ? {} : { temperature: options.temperature }),
    },
    card,
    messages: options.system === undefined ? [] : [{ role: 'system', content: options.system }],
  };
  return isConversation ? await converse(talk) : await askOnce(talk, question);
}

/** The fields of GET /v1/models that are used here. */
interface Card {
  readonly id: string;
  readonly chats: boolean;
  readonly prices: Prices;
}

interface Talk {
  readonly context: BareContext;
  readonly request: Omit<ChatRequest, 'messages'>;
  readonly card: Card;
  /** Grows with the conversation. */
  readonly messages: Message[];
}

async function askOnce(talk: Talk, question: string): Promise<number> {
  const interrupt = new AbortController();
  let isReaderGone = false;
  const onInterrupt = (): void => interrupt.abort();
  // As in `tokenhouse chat … | head`: nobody would read what is generated and paid for.
  const onReaderGone = (): void => {
    isReaderGone = true;
    interrupt.abort();
  };
  process.once('SIGINT', onInterrupt);
  process.stdout.once('error', onReaderGone);
  try {
    const { print } = talk.context;
    const answer = await ask(talk, question, interrupt.signal, print.json ? silently : shown());
    if (print.json) {
      const { text, reasoning, finish, firstTokenMs, totalMs, usage, requestId } = answer;
      const cost = costOf(answer, talk.card);
      print.result(
        {
          model: talk.card.id,
          request_id: requestId ?? null,
          text,
          reasoning: reasoning === '' ? null : reasoning,
          finish: finish ?? null,
          first_token_ms: firstTokenMs ?? null,
          total_ms: totalMs,
          usage: usage ?? null,
          cost_microcents: cost ?? null,
        },
        [],
      );
    }
    return answer.isCancelled && !isReaderGone ? interruptedCode : 0;
  } finally {
    process.off('SIGINT', onInterrupt);
    process.stdout.off('error', onReaderGone);
  }
}

/** Talks until `/exit` or the end of the input. An interrupt ends the answer, not the conversation. */
async function converse(talk: Talk): Promise<number> {
  const { print } = talk.context;
  print.say(`${talk.card.id} · /exit ends the chat, /help shows more, Ctrl-C stops an answer`);
  // Remembers the lines of this session for the arrow keys.
  const lines = createInterface({ input: process.stdin, output: process.stderr, terminal: true, historySize: 1000 });
  let running: AbortController | undefined;
  lines.on('SIGINT', () => {
    if (running !== undefined) running.abort();
    else print.say('\n/exit leaves');
    lines.prompt();
  });
  const ended = new Promise<undefined>((resolve) => lines.once('close', () => resolve(undefined)));
  try {
    for (;;) {
      const line = await Promise.race([lines.question('> '), ended]);
      if (line === undefined || line.trim() === '/exit') return 0;
      if (line.trim() === '' || isCommand(talk, line.trim())) continue;
      running = new AbortController();
      try {
        await ask(talk, line, running.signal, shown());
      } catch (error) {
        explain(await failureOf(error, talk.context.around.directory), print);
      } finally {
        running = undefined;
      }
    }
  } finally {
    lines.close();
  }
}

const help = `/new    forget the conversation, and begin anew
/exit   leave
/help   show this; a message may begin with a slash if a space or more words follow`;

/** A word behind a slash is meant for this program: as a message it would be charged. */
function isCommand({ context: { print }, messages }: Talk, line: string): boolean {
  if (!/^\/[A-Za-z?]+$/.test(line)) return false;
  if (line === '/new') messages.splice(0, messages.length, ...messages.filter(({ role }) => role === 'system'));
  else print.say(line === '/help' || line === '/?' ? help : `${line} is no command.\n${help}`);
  return true;
}

/** On a terminal, removes the codes that would move its cursor or change its state: a model may output anything. */
function writeOut(text: string): void {
  process.stdout.write(process.stdout.isTTY ? withoutControls(text) : text);
}

const silently: AnswerReader = { reasoning: () => {}, text: () => {} };

/** Shows the answer as the result. The reasoning before it is commentary, dimmed on a terminal. */
function shown(): AnswerReader {
  const { stderr } = process;
  const [dim, plain] = stderr.isTTY && stderr.hasColors() ? ['\u001b[2m', '\u001b[22m'] : ['', ''];
  let isThinking = false;
  return {
    reasoning: (text) => {
      isThinking = true;
      stderr.write(`${dim}${stderr.isTTY ? withoutControls(text) : text}${plain}`);
    },
    text: (text) => {
      if (isThinking) stderr.write('\n\n');
      isThinking = false;
      writeOut(text);
    },
  };
}

/** Asks one question. It is added to the conversation together with its answer, only if there is one. */
async function ask(
  { context: { print }, request, card, messages }: Talk,
  question: string,
  signal: AbortSignal,
  to: AnswerReader,
): Promise<Answer> {
  const message: Message = { role: 'user', content: question };
  const answer = await streamAnswer({ ...request, messages: [...messages, message] }, signal, to);
  if (answer.text !== '') {
    messages.push(message, { role: 'assistant', content: answer.text });
    if (!print.json && !answer.text.endsWith('\n')) to.text('\n');
  }
  print.say(summaryOf(answer, card));
  if (answer.error !== undefined) throw refusal(answer.error, request.url);
  return answer;
}

function summaryOf(answer: Answer, card: Card): string {
  const { usage, firstTokenMs, totalMs, finish } = answer;
  const cost = costOf(answer, card);
  const generatingMs = totalMs - (firstTokenMs ?? totalMs);
  const isFast = usage !== undefined && usage.completion_tokens > 1 && generatingMs > 0;
  return [
    ...(answer.isCancelled ? ['cancelled'] : []),
    ...(firstTokenMs === undefined ? [] : [`first token after ${secondsInWords(firstTokenMs)}`]),
    ...(isFast ? [`${(((usage.completion_tokens - 1) * 1000) / generatingMs).toFixed(1)} tok/s`] : []),
    ...(usage === undefined ? [] : [`${usage.prompt_tokens} → ${usage.completion_tokens} tokens`]),
    cost === undefined ? 'cost: npx tokenhouse usage' : dollars(cost),
    ...(finish === 'length' ? ['cut at --max-tokens or at the context window'] : []),
  ].join(' · ');
}

/** Undefined without usage figures. */
function costOf({ usage }: Answer, { prices }: Card): bigint | undefined {
  if (usage === undefined) return undefined;
  return costMicrocents(
    {
      promptTokens: usage.prompt_tokens,
      cachedTokens: usage.prompt_tokens_details?.cached_tokens ?? 0,
      completionTokens: usage.completion_tokens,
    },
    prices,
  );
}

/** The address of the service that runs on this data folder. Without an answer, one may still be at the configured address. */
async function runningHere({ around, configPath, print }: BareContext): Promise<{
  readonly url: string;
  readonly isRunning: boolean;
  readonly context: Context;
}> {
  const { config, environment } = readContext(configPath, around.directory);
  const context = { around, config, environment, print };
  return { ...(await serviceHere(context)), context };
}

async function readCards(url: string, key: string | undefined): Promise<readonly Card[]> {
  const answer = await reach(url, '/v1/models', {
    signal: AbortSignal.timeout(30_000),
    ...(key === undefined ? {} : { headers: { authorization: `Bearer ${key}` } }),
  });
  const body: unknown = await answer.json().catch(() => undefined);
  if (!answer.ok) throw refusal((body as { error?: unknown } | undefined)?.error, url);
  const { data } = (body ?? {}) as { readonly data?: readonly CardOnTheWire[] };
  if (!Array.isArray(data) || data.length === 0) throw notOurs(url);
  return (data as readonly CardOnTheWire[]).map(({ id, service }) => {
    const pricing = service?.pricing ?? {};
    return {
      id,
      chats: service?.capabilities?.chat_completions?.supported !== false,
      prices: {
        input: microcents(pricing.input_cents_per_million),
        output: microcents(pricing.output_cents_per_million),
        cacheRead: BigInt(pricing.cache_read_microcents_per_million ?? 0),
      },
    };
  });
}

interface CardOnTheWire {
  readonly id: string;
  readonly service?: {
    readonly pricing?: {
      readonly input_cents_per_million?: number;
      readonly output_cents_per_million?: number;
      readonly cache_read_microcents_per_million?: number;
    };
    readonly capabilities?: { readonly chat_completions?: { readonly supported?: boolean } };
  };
}

/** The card's doubles are those nearest to decimals with six places, so this is exact. */
const microcents = (centsPerMillion = 0): bigint => BigInt(Math.round(centsPerMillion * 1_000_000));

/** `chat "hello"` asks the first model that chats; `chat small "hello"` and `chat small` name one. */
function modelMeant(
  cards: readonly Card[],
  first: string | undefined,
  rest: readonly string[],
): { readonly model: string; readonly words: string } {
  const fallback = (cards.find(({ chats }) => chats) ?? cards[0]!).id;
  if (first === undefined) return { model: fallback, words: '' };
  const named = cards.find(({ id }) => id.toLowerCase() === first.toLowerCase());
  if (named !== undefined) return { model: named.id, words: rest.join(' ') };
  if (rest.length === 0 || /\s/.test(first)) return { model: fallback, words: [first, ...rest].join(' ') };
  throw new CommandFailure({
    what: [`There is no model ${JSON.stringify(first.slice(0, 100))} at this service.`],
    why: `its models are ${cards
      .map(({ id }) => id)
      .join(', ')
      .slice(0, 500)}`,
    repair: [`tokenhouse chat ${fallback} ${JSON.stringify(rest.join(' ').slice(0, 100))}`],
    exitCode: exitCodes.refused,
  });
}

/** Reads without an echo: the input is a secret. */
async function askForKey(): Promise<string> {
  const { stdin, stderr } = process;
  if (!stdin.isTTY || !stderr.isTTY) throw noKey();
  // Before the question, so that a key pasted immediately is not echoed either.
  stdin.setRawMode(true);
  stdin.setEncoding('utf8');
  stderr.write('API key: ');
  // Not an iterator: leaving one would close the input, and a conversation follows.
  const key = await new Promise<string | undefined>((resolve) => {
    let typed = '';
    const onText = (text: string): void => {
      for (const character of text) {
        if (character === '\u0003' || character === '\u0004') return end(undefined);
        if (character === '\r' || character === '\n') return end(typed.trim());
        typed = character === '\u007f' ? typed.slice(0, -1) : typed + character;
      }
    };
    const end = (result: string | undefined): void => {
      stdin.off('data', onText);
      stdin.pause();
      resolve(result);
    };
    stdin.on('data', onText);
  });
  stdin.setRawMode(false);
  stderr.write('\n');
  if (key === undefined || key === '') throw noKey();
  return key;
}

async function readAll(input: NodeJS.ReadableStream): Promise<string> {
  let text = '';
  for await (const chunk of input.setEncoding('utf8')) {
    text += chunk as string;
    if (text.length > promptBytesMax) break; // the service refuses it with its own message
  }
  return text.trimEnd();
}
