import { createSocket } from 'node:dgram';
import type { Socket } from 'node:dgram';
import { createServer } from 'node:net';
import type { AddressInfo, Server, Socket as TcpSocket } from 'node:net';

/**
 * `A 127.0.0.1`, `AAAA ::1`, `CNAME other.test` or `SRV 10 5 8000 target.test`; an answer that is asked for another type has none of
 * it.
 */
export type DnsRecord = `${RecordType} ${string}`;
type RecordType = 'A' | 'AAAA' | 'CNAME' | 'SRV';

/**
 * What a name stands for at its `query`th query of that type, the first being 0; `silent`: no answer at all, `fails`: SERVFAIL.
 */
export type DnsZone = (
  name: string,
  type: Exclude<RecordType, 'CNAME'>,
  query: number,
) => readonly DnsRecord[] | 'silent' | 'fails';

/** A name server on a port of its own, over UDP and TCP. Its answers may not be kept, unless they have a TTL. */
export class DnsServer {
  readonly #socket: Socket;
  readonly #overTcp: Server;
  readonly #ttlSeconds: number;
  /** Answers that UDP cannot carry, so that resolvers ask again over TCP. */
  truncated = 0;
  tcpQueries = 0;
  /** `A name`, in the order in which they came. */
  readonly queries: string[] = [];

  private constructor(socket: Socket, overTcp: Server, ttlSeconds: number) {
    this.#socket = socket;
    this.#overTcp = overTcp;
    this.#ttlSeconds = ttlSeconds;
  }

  static async start(zone: DnsZone, { ttlSeconds = 0 } = {}): Promise<DnsServer> {
    const socket = createSocket('udp4');
    const overTcp = createServer((connection) => server.#serve(connection, zone));
    const server = new DnsServer(socket, overTcp, ttlSeconds);
    socket.on('message', (message, from) => {
      let answer = server.#answer(message, zone);
      if (answer !== undefined && answer.length > udpBytesMax) {
        server.truncated++;
        answer = Buffer.from(answer.subarray(0, questionEnd(message)));
        answer.writeUInt16BE(0x8380, 2);
        answer.writeUInt16BE(0, 6);
      }
      if (answer !== undefined) socket.send(answer, from.port, from.address);
    });
    await new Promise<void>((resolve) => overTcp.listen(0, '127.0.0.1', resolve));
    const { port } = overTcp.address() as AddressInfo;
    await new Promise<void>((resolve, reject) => socket.once('error', reject).bind(port, '127.0.0.1', resolve));
    return server;
  }

  /** Each message has its length before it. */
  #serve(connection: TcpSocket, zone: DnsZone): void {
    let bytes = Buffer.alloc(0);
    connection.on('error', () => {});
    connection.on('data', (more) => {
      bytes = Buffer.concat([bytes, more]);
      while (bytes.length >= 2 && bytes.length >= 2 + bytes.readUInt16BE(0)) {
        const end = 2 + bytes.readUInt16BE(0);
        this.tcpQueries++;
        const answer = this.#answer(bytes.subarray(2, end), zone);
        bytes = bytes.subarray(end);
        if (answer === undefined) continue;
        const length = Buffer.alloc(2);
        length.writeUInt16BE(answer.length);
        connection.write(Buffer.concat([length, answer]));
      }
    });
  }

  get address(): string {
    return `127.0.0.1:${(this.#socket.address() as AddressInfo).port}`;
  }

  async close(): Promise<void> {
    await new Promise<void>((resolve) => this.#socket.close(() => resolve()));
    await new Promise<void>((resolve) => this.#overTcp.close(() => resolve()));
  }

  #answer(message: Buffer, zone: DnsZone): Buffer | undefined {
    let at = 12;
    const labels: string[] = [];
    for (let length = message[at]!; length !== 0; length = message[at]!) {
      labels.push(message.toString('latin1', at + 1, at + 1 + length));
      at += 1 + length;
    }
    const question = message.subarray(12, questionEnd(message));
    const type = typeNames[message.readUInt16BE(at + 1)];
    const name = labels.join('.').toLowerCase();
    const asked = `${type} ${name}`;
    const records =
      type === 'A' || type === 'AAAA' || type === 'SRV'
        ? zone(name, type, this.queries.filter((q) => q === asked).length)
        : [];
    this.queries.push(asked);
    if (records === 'silent') return undefined;
    if (records === 'fails') {
      const failure = Buffer.concat([message.subarray(0, 12), question]);
      failure.writeUInt16BE(0x8182, 2);
      failure.writeUInt16BE(1, 4);
      failure.writeUInt32BE(0, 8);
      return failure;
    }
    const fitting = records.filter((record) => record.startsWith(`${type} `) || record.startsWith('CNAME '));
    const head = Buffer.from(message.subarray(0, 12));
    head.writeUInt16BE(records.length === 0 ? 0x8183 : 0x8180, 2);
    head.writeUInt16BE(1, 4);
    head.writeUInt16BE(fitting.length, 6);
    head.writeUInt32BE(0, 8);
    let owner = name;
    const answers = fitting.map((record) => {
      const [, kind = '', value = ''] = /^(\S+) (.*)$/.exec(record) ?? [];
      const bytes = recordOf(owner, kind, value, this.#ttlSeconds);
      if (kind === 'CNAME') owner = value;
      return bytes;
    });
    return Buffer.concat([head, question, ...answers]);
  }
}

/** RFC 1035, without the extension by which resolvers allow more. */
const udpBytesMax = 512;

/** One question after a head of 12 bytes: a name, its type and its class. */
function questionEnd(message: Buffer): number {
  let at = 12;
  while (message[at] !== 0) at += 1 + message[at]!;
  return at + 5;
}

const typeNames: Readonly<Record<number, string>> = { 1: 'A', 5: 'CNAME', 28: 'AAAA', 33: 'SRV' };

function dataOf(kind: string, value: string): Buffer {
  if (kind === 'A') return Buffer.from(value.split('.').map(Number));
  if (kind === 'AAAA') return wholeIPv6(value);
  if (kind !== 'SRV') return nameOf(value);
  const [priority, weight, port, target] = value.split(' ') as [string, string, string, string];
  const numbers = Buffer.alloc(6);
  for (const [index, number] of [priority, weight, port].entries()) numbers.writeUInt16BE(Number(number), 2 * index);
  return Buffer.concat([numbers, nameOf(target)]);
}

function recordOf(owner: string, kind: string, value: string, ttlSeconds: number): Buffer {
  const data = dataOf(kind, value);
  const fields = Buffer.alloc(10);
  fields.writeUInt16BE(Number(Object.keys(typeNames).find((type) => typeNames[Number(type)] === kind)), 0);
  fields.writeUInt16BE(1, 2);
  fields.writeUInt32BE(ttlSeconds, 4);
  fields.writeUInt16BE(data.length, 8);
  return Buffer.concat([nameOf(owner), fields, data]);
}

const nameOf = (name: string): Buffer =>
  Buffer.concat([
    ...name.split('.').flatMap((label) => [Buffer.from([label.length]), Buffer.from(label)]),
    Buffer.from([0]),
  ]);

/** An address of the common form with at most one `::`. */
function wholeIPv6(text: string): Buffer {
  const [head = '', tail = ''] = text.split('::');
  const groups = (part: string): number[] => (part === '' ? [] : part.split(':').map((group) => parseInt(group, 16)));
  const before = groups(head);
  const after = groups(tail);
  const all = [...before, ...new Array<number>(8 - before.length - after.length).fill(0), ...after];
  return Buffer.from(all.flatMap((group) => [group >> 8, group & 255]));
}
