import { createSocket } from 'node:dgram';
import type { Socket } from 'node:dgram';
import type { AddressInfo } from 'node:net';

/** `A 127.0.0.1`, `AAAA ::1` or `CNAME other.test`; an answer that is asked for another type has none of it. */
export type DnsRecord = `${'A' | 'AAAA' | 'CNAME'} ${string}`;

/** What a name stands for at its `query`th query of that type, the first being 0; `silent`: no answer at all. */
export type DnsZone = (name: string, type: 'A' | 'AAAA', query: number) => readonly DnsRecord[] | 'silent';

/** A name server on a port of its own, whose answers may not be kept (TTL 0). */
export class DnsServer {
  readonly #socket: Socket;
  /** `A name`, in the order in which they came. */
  readonly queries: string[] = [];

  private constructor(socket: Socket) {
    this.#socket = socket;
  }

  static async start(zone: DnsZone): Promise<DnsServer> {
    const socket = createSocket('udp4');
    const server = new DnsServer(socket);
    socket.on('message', (message, from) => {
      const answer = server.#answer(message, zone);
      if (answer !== undefined) socket.send(answer, from.port, from.address);
    });
    await new Promise<void>((resolve) => socket.bind(0, '127.0.0.1', resolve));
    return server;
  }

  get address(): string {
    return `127.0.0.1:${(this.#socket.address() as AddressInfo).port}`;
  }

  async close(): Promise<void> {
    await new Promise<void>((resolve) => this.#socket.close(() => resolve()));
  }

  #answer(message: Buffer, zone: DnsZone): Buffer | undefined {
    let at = 12;
    const labels: string[] = [];
    for (let length = message[at]!; length !== 0; length = message[at]!) {
      labels.push(message.toString('latin1', at + 1, at + 1 + length));
      at += 1 + length;
    }
    const question = message.subarray(12, at + 5);
    const type = typeNames[message.readUInt16BE(at + 1)];
    const name = labels.join('.').toLowerCase();
    const asked = `${type} ${name}`;
    const records =
      type === 'A' || type === 'AAAA' ? zone(name, type, this.queries.filter((q) => q === asked).length) : [];
    this.queries.push(asked);
    if (records === 'silent') return undefined;
    const fitting = records.filter((record) => record.startsWith(`${type} `) || record.startsWith('CNAME '));
    const head = Buffer.from(message.subarray(0, 12));
    head.writeUInt16BE(records.length === 0 ? 0x8183 : 0x8180, 2);
    head.writeUInt16BE(1, 4);
    head.writeUInt16BE(fitting.length, 6);
    head.writeUInt32BE(0, 8);
    let owner = name;
    const answers = fitting.map((record) => {
      const [kind, value] = record.split(' ') as [string, string];
      const bytes = recordOf(owner, kind, value);
      if (kind === 'CNAME') owner = value;
      return bytes;
    });
    return Buffer.concat([head, question, ...answers]);
  }
}

const typeNames: Readonly<Record<number, string>> = { 1: 'A', 5: 'CNAME', 28: 'AAAA' };

function recordOf(owner: string, kind: string, value: string): Buffer {
  const data =
    kind === 'A' ? Buffer.from(value.split('.').map(Number)) : kind === 'AAAA' ? wholeIPv6(value) : nameOf(value);
  const fields = Buffer.alloc(10);
  fields.writeUInt16BE(kind === 'A' ? 1 : kind === 'AAAA' ? 28 : 5, 0);
  fields.writeUInt16BE(1, 2);
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
