import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** One post as it arrived. */
export interface OtlpPost {
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: Buffer;
}

export interface ReceivedSpan {
  readonly traceId: string;
  readonly spanId: string;
  /** Empty: it has none. */
  readonly parentSpanId: string;
  readonly name: string;
  readonly kind: number;
  readonly flags: number;
  readonly startedNs: bigint;
  readonly endedNs: bigint;
  readonly attributes: Attributes;
  readonly events: readonly { readonly name: string; readonly atNs: bigint }[];
  readonly isError: boolean;
  readonly resource: Attributes;
  readonly scope: string;
}

export interface ReceivedPoint {
  readonly name: string;
  readonly description: string;
  readonly unit: string;
  readonly type: 'gauge' | 'sum' | 'histogram';
  readonly isMonotonic: boolean;
  readonly attributes: Attributes;
  readonly startedNs: bigint;
  readonly atNs: bigint;
  /** Of a histogram its sum. */
  readonly value: number;
  readonly count: bigint;
  readonly bounds: readonly number[];
  readonly counts: readonly bigint[];
  readonly resource: Attributes;
}

export type Attributes = Readonly<Record<string, unknown>>;

/** What it does with a post; undefined: it takes it. */
export type Behaviour = (post: OtlpPost, response: ServerResponse) => void;

/** A collector of OpenTelemetry that keeps what it is sent: OTLP over HTTP, Protocol Buffers. */
export class OtlpCollector {
  readonly #server: Server;
  readonly posts: OtlpPost[] = [];
  /** Posts that have begun, whether they arrived whole or not. */
  begun = 0;
  behaviour: Behaviour | undefined;

  private constructor() {
    this.#server = createServer((request, response) => {
      this.begun++;
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('error', () => {});
      request.on('end', () => {
        const post = { path: request.url ?? '', headers: request.headers, body: Buffer.concat(chunks) };
        if (this.behaviour !== undefined) return this.behaviour(post, response);
        this.posts.push(post);
        response.writeHead(200, { 'content-type': 'application/x-protobuf' }).end();
      });
    });
  }

  static async start(port = 0): Promise<OtlpCollector> {
    const collector = new OtlpCollector();
    await new Promise<void>((resolve) => collector.#server.listen(port, '127.0.0.1', resolve));
    return collector;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Every span that has arrived. */
  get spans(): readonly ReceivedSpan[] {
    return this.posts.filter(({ path }) => path.endsWith('/v1/traces')).flatMap(({ body }) => spansOf(body));
  }

  /** Every point of every metric that has arrived, the latest last. */
  get points(): readonly ReceivedPoint[] {
    return this.posts.filter(({ path }) => path.endsWith('/v1/metrics')).flatMap(({ body }) => pointsOf(body));
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise<void>((resolve) => void this.#server.close(() => resolve()));
  }
}

/** The numbers of fields are those of opentelemetry-proto 1.x, written down here once more: this is not our own encoder read backwards. */
export const spansOf = (body: Uint8Array): readonly ReceivedSpan[] =>
  messagesOf(body, 1).flatMap((resourceSpans) => {
    const resource = attributesOf(messageOf(resourceSpans, 1), 1);
    return messagesOf(resourceSpans, 2).flatMap((scopeSpans) =>
      messagesOf(scopeSpans, 2).map((span) => ({
        traceId: hexOf(span, 1),
        spanId: hexOf(span, 2),
        parentSpanId: hexOf(span, 4),
        name: textOf(span, 5),
        kind: Number(numberOf(span, 6)),
        flags: Number(numberOf(span, 16)),
        startedNs: numberOf(span, 7),
        endedNs: numberOf(span, 8),
        attributes: attributesOf(span, 9),
        events: messagesOf(span, 11).map((event) => ({ atNs: numberOf(event, 1), name: textOf(event, 2) })),
        isError: numberOf(messageOf(span, 15), 3) === 2n,
        resource,
        scope: textOf(messageOf(scopeSpans, 1), 1),
      })),
    );
  });

export const pointsOf = (body: Uint8Array): readonly ReceivedPoint[] =>
  messagesOf(body, 1).flatMap((resourceMetrics) => {
    const resource = attributesOf(messageOf(resourceMetrics, 1), 1);
    return messagesOf(resourceMetrics, 2).flatMap((scopeMetrics) =>
      messagesOf(scopeMetrics, 2).flatMap((metric) => {
        const type = (['gauge', 'sum', 'histogram'] as const).find((_, index) => has(metric, 5 + 2 * index))!;
        const data = messageOf(metric, { gauge: 5, sum: 7, histogram: 9 }[type]);
        return messagesOf(data, 1).map((point) => ({
          name: textOf(metric, 1),
          description: textOf(metric, 2),
          unit: textOf(metric, 3),
          type,
          isMonotonic: numberOf(data, 3) === 1n,
          attributes: attributesOf(point, type === 'histogram' ? 9 : 7),
          startedNs: numberOf(point, 2),
          atNs: numberOf(point, 3),
          value: doubleOf(numberOf(point, type === 'histogram' ? 5 : 4)),
          count: numberOf(point, 4),
          bounds: type === 'histogram' ? packedOf(point, 7).map(doubleOf) : [],
          counts: type === 'histogram' ? packedOf(point, 6) : [],
          resource,
        }));
      }),
    );
  });

function attributesOf(message: Uint8Array, field: number): Attributes {
  const entries = messagesOf(message, field).map((pair) => [textOf(pair, 1), valueOf(messageOf(pair, 2))] as const);
  if (new Set(entries.map(([name]) => name)).size !== entries.length)
    throw new Error(`an attribute is given twice: ${JSON.stringify(entries)}`);
  return Object.fromEntries(entries);
}

function valueOf(value: Uint8Array): unknown {
  if (has(value, 1)) return textOf(value, 1);
  if (has(value, 2)) return numberOf(value, 2) === 1n;
  if (has(value, 3)) return Number(numberOf(value, 3));
  if (has(value, 4)) return doubleOf(numberOf(value, 4));
  if (has(value, 5)) return messagesOf(messageOf(value, 5), 1).map(valueOf);
  throw new Error('a value of no type');
}

interface Field {
  readonly number: number;
  readonly value: bigint | Uint8Array;
}

/** The wire format of Protocol Buffers; throws for what is none. */
function fieldsOf(message: Uint8Array): readonly Field[] {
  const bytes = Buffer.from(message);
  const fields: Field[] = [];
  let at = 0;
  const varint = (): bigint => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes.readUInt8(at++);
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return value;
    }
  };
  while (at < bytes.length) {
    const tag = Number(varint());
    const number = tag >> 3;
    switch (tag & 7) {
      case 0:
        fields.push({ number, value: varint() });
        break;
      case 1:
        fields.push({ number, value: bytes.readBigUInt64LE(at) });
        at += 8;
        break;
      case 2: {
        const length = Number(varint());
        if (at + length > bytes.length) throw new Error('a field ends after its message');
        fields.push({ number, value: bytes.subarray(at, at + length) });
        at += length;
        break;
      }
      case 5:
        fields.push({ number, value: BigInt(bytes.readUInt32LE(at)) });
        at += 4;
        break;
      default:
        throw new Error(`wire type ${tag & 7}`);
    }
  }
  return fields;
}

const has = (message: Uint8Array, number: number): boolean =>
  fieldsOf(message).some((field) => field.number === number);

const messagesOf = (message: Uint8Array, number: number): readonly Uint8Array[] =>
  fieldsOf(message).flatMap((field) => {
    if (field.number !== number) return [];
    if (typeof field.value === 'bigint') throw new Error(`field ${number} is no message`);
    return [field.value];
  });

const messageOf = (message: Uint8Array, number: number): Uint8Array =>
  messagesOf(message, number).at(-1) ?? new Uint8Array();
const textOf = (message: Uint8Array, number: number): string => Buffer.from(messageOf(message, number)).toString();
const hexOf = (message: Uint8Array, number: number): string => Buffer.from(messageOf(message, number)).toString('hex');

function numberOf(message: Uint8Array, number: number): bigint {
  const value = fieldsOf(message).findLast((field) => field.number === number)?.value ?? 0n;
  if (typeof value !== 'bigint') throw new Error(`field ${number} is no number`);
  return value;
}

function doubleOf(bits: bigint): number {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(bits);
  return bytes.readDoubleLE();
}

function packedOf(message: Uint8Array, number: number): readonly bigint[] {
  const bytes = Buffer.from(messageOf(message, number));
  return Array.from({ length: bytes.length / 8 }, (_, index) => bytes.readBigUInt64LE(8 * index));
}
