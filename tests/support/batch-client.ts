import assert from 'node:assert/strict';

import type { TestService } from './service.ts';
import { until } from './service.ts';

export interface BatchObject {
  readonly id: string;
  readonly status: string;
  readonly model: string | null;
  readonly errors: {
    readonly data: readonly {
      readonly code: string;
      readonly line: number;
      readonly param: string | null;
      readonly message: string;
    }[];
  } | null;
  readonly output_file_id: string | null;
  readonly error_file_id: string | null;
  readonly request_counts: { readonly total: number; readonly completed: number; readonly failed: number };
  readonly expires_at: number;
  readonly created_at: number;
  readonly metadata: unknown;
}

export interface LineUsage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly prompt_tokens_details?: { readonly cached_tokens: number };
}

export interface ResultLine {
  readonly id: string;
  readonly custom_id: string;
  readonly response: {
    readonly status_code: number;
    readonly request_id: string;
    readonly body: {
      readonly choices?: readonly { readonly message: { readonly content: string } }[];
      readonly usage?: LineUsage;
      readonly error?: { readonly code: string };
    };
  } | null;
  readonly error: { readonly code: string } | null;
}

/** A line of a batch of chat completions. */
export const chatLine = (customId: string, content: string, more: object = {}): object => ({
  custom_id: customId,
  method: 'POST',
  url: '/v1/chat/completions',
  body: { model: 'demo', messages: [{ role: 'user', content }], ...more },
});

export const jsonl = (lines: readonly object[]): string => lines.map((line) => `${JSON.stringify(line)}\n`).join('');

/** Batches by hand, for tests of what official clients do not do. */
export class BatchClient {
  readonly #service: TestService;
  readonly #key: string | undefined;

  constructor(service: TestService, key?: string) {
    this.#service = service;
    this.#key = key;
  }

  async send(path: string, init: RequestInit = {}): Promise<Response> {
    return await fetch(`${this.#service.url}/v1${path}`, {
      ...init,
      headers: { authorization: `Bearer ${this.#key ?? this.#service.key}`, ...(init.headers as object) },
    });
  }

  async upload(text: string): Promise<string> {
    const form = new FormData();
    form.set('file', new Blob([text]), 'batch.jsonl');
    form.set('purpose', 'batch');
    const answer = await this.send('/files', { method: 'POST', body: form });
    const body = (await answer.json()) as { id: string };
    assert.equal(answer.status, 200, JSON.stringify(body));
    return body.id;
  }

  async create(fileId: string, more: object = {}): Promise<BatchObject> {
    const body = { input_file_id: fileId, endpoint: '/v1/chat/completions', completion_window: '24h', ...more };
    const answer = await this.send('/batches', { method: 'POST', body: JSON.stringify(body) });
    const batch = (await answer.json()) as BatchObject;
    assert.equal(answer.status, 200, JSON.stringify(batch));
    return batch;
  }

  async of(lines: readonly object[], more: object = {}): Promise<BatchObject> {
    return await this.create(await this.upload(jsonl(lines)), more);
  }

  /** Asked again while the store does not answer in time, as clients do. */
  async get(id: string): Promise<BatchObject> {
    for (let tries = 0; ; tries++) {
      const answer = await this.send(`/batches/${id}`);
      const batch = (await answer.json()) as BatchObject;
      const seconds = Number(answer.headers.get('retry-after'));
      if (answer.ok || seconds === 0 || tries === 20) {
        assert.ok(answer.ok, JSON.stringify(batch));
        return batch;
      }
      await new Promise((resolve) => setTimeout(resolve, seconds * 1_000));
    }
  }

  async cancel(id: string): Promise<BatchObject> {
    return (await (await this.send(`/batches/${id}/cancel`, { method: 'POST' })).json()) as BatchObject;
  }

  /** The batch as soon as a condition holds, for example that it is over. */
  async when(id: string, holds: (batch: BatchObject) => boolean = isOver, timeoutMs = 60_000): Promise<BatchObject> {
    let batch: BatchObject | undefined;
    await until(async () => holds((batch = await this.get(id))), timeoutMs);
    return batch!;
  }

  async results(fileId: string | null): Promise<readonly ResultLine[]> {
    if (fileId === null) return [];
    const text = await (await this.send(`/files/${fileId}/content`)).text();
    assert.ok(text.endsWith('\n'), text);
    return text
      .slice(0, -1)
      .split('\n')
      .map((line) => JSON.parse(line) as ResultLine);
  }
}

export const isOver = ({ status }: BatchObject): boolean =>
  ['completed', 'failed', 'expired', 'cancelled'].includes(status);
