import { EventReader } from '../../api/sse.ts';

/** One streamed question to the inference host, as any program asks it: with a key, over HTTP. */
export interface Asked {
  readonly url: string;
  readonly secret: string;
  readonly model: string;
  readonly prompt: string;
  readonly signal: AbortSignal;
  /** Each piece of the answer's text. */
  readonly onText: (text: string) => void;
}

/** Thrown with the words of the API, or when it cannot be reached. */
export class AskFailure extends Error {
  /** The browser has got no answer at all. */
  readonly isUnreachable: boolean;

  constructor(message: string, isUnreachable = false) {
    super(message);
    this.isUnreachable = isUnreachable;
  }
}

export async function ask({ url, secret, model, prompt, signal, onText }: Asked): Promise<void> {
  const answer = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model, stream: true, messages: [{ role: 'user', content: prompt }] }),
    signal,
  }).catch((error: unknown) => {
    if (signal.aborted) throw error;
    throw new AskFailure(String(error), true);
  });
  if (!answer.ok || answer.body === null) throw new AskFailure(await messageOf(answer));
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const events = new EventReader();
  for (let read = await reader.read(); !read.done; read = await reader.read())
    for (const { data } of events.read(read.value)) take(data, onText);
}

async function messageOf(answer: Response): Promise<string> {
  const body = (await answer.json().catch(() => undefined)) as
    { readonly error?: { readonly message?: string } } | undefined;
  return body?.error?.message ?? `HTTP ${answer.status}`;
}

function take(data: string, onText: (text: string) => void): void {
  if (data === '[DONE]') return;
  const chunk = JSON.parse(data) as {
    readonly choices?: readonly { readonly delta?: { readonly content?: string } }[];
    readonly error?: { readonly message: string };
  };
  if (chunk.error !== undefined) throw new AskFailure(chunk.error.message);
  const text = chunk.choices?.[0]?.delta?.content;
  if (typeof text === 'string' && text !== '') onText(text);
}
