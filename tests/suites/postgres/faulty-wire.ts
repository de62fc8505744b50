/** A wire to a real server on which one call, chosen by its number, goes wrong. A call is what PostgreSQL answers as a whole. */
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';

/**
 * `cut-after`: the connection breaks when the call is carried out, before its answer comes; `cut-before`: before it reaches the server.
 * `57P01`: the server is being shut down. `53300`: the connection breaks, and
 * the next one is refused, because there are too many. All others are errors with this code of a server that goes on; they are raised by
 * the server itself in place of the call, so that a transaction is as broken as it would be.
 */
export const wireFaults = ['cut-after', 'cut-before', '57P01', '53300', '40001', '53100', '55P03', '57014'] as const;
export type WireFault = (typeof wireFaults)[number];

export class FaultyWire {
  readonly #server: Server;
  readonly #databasePort: number;
  readonly #sockets = new Set<Socket>();
  #fault: WireFault | undefined;
  #left = 0;
  #refuses = false;
  /** Since the last `arm`. */
  calls = 0;
  hasFailed = false;

  private constructor(databasePort: number) {
    this.#databasePort = databasePort;
    this.#server = createServer((client) => this.#join(client));
  }

  static async open(databasePort: number): Promise<FaultyWire> {
    const wire = new FaultyWire(databasePort);
    await new Promise<void>((resolve) => wire.#server.listen(0, '127.0.0.1', resolve));
    return wire;
  }

  /** The same database, on this wire. */
  url(url: string): string {
    return url.replace(`:${this.#databasePort}/`, `:${(this.#server.address() as AddressInfo).port}/`);
  }

  /** From now on calls are counted, and this one fails; undefined: none. Heartbeats, and those of readers of changes, are not counted. */
  arm(fault: WireFault | undefined, call: number): void {
    Object.assign(this, { calls: 0, hasFailed: false });
    this.#fault = fault;
    this.#left = call;
  }

  disarm(): void {
    this.#fault = undefined;
    this.#refuses = false;
  }

  close(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  /** The fault of this call, if it is its turn. */
  #met(): WireFault | undefined {
    this.calls++;
    if (this.#fault === undefined || --this.#left !== 0) return undefined;
    this.hasFailed = true;
    return this.#fault;
  }

  #join(client: Socket): void {
    const database = connect(this.#databasePort, '127.0.0.1');
    const both = [client, database];
    const cut = (): void => both.forEach((socket) => socket.destroy());
    for (const socket of both) {
      this.#sockets.add(socket);
      socket.setNoDelay(true);
      socket.on('error', () => {});
      socket.on('close', () => (cut(), this.#sockets.delete(socket)));
    }
    const fatal = (code: string): void => {
      database.destroy();
      client.end(errorResponse(code));
    };
    let listens = false;
    let isAnswerLost = false;
    let pending: Buffer[] = [];
    client.on(
      'data',
      messages(true, (kind, message) => {
        if (kind === 'startup' && this.#refuses) {
          this.#refuses = false;
          fatal('53300');
          return;
        }
        listens ||= kind === 'Q' && message.includes('listen ');
        pending.push(message);
        // Only these end a call: a query, or the end of one in parts.
        if (kind !== 'Q' && kind !== 'S' && kind !== 'startup' && kind !== 'X') return;
        const call = Buffer.concat(pending);
        pending = [];
        const fault = listens || kind === 'startup' || kind === 'X' ? undefined : this.#met();
        switch (fault) {
          case undefined:
            break;
          case 'cut-before':
            cut();
            return;
          case '53300':
            this.#refuses = true;
            cut();
            return;
          case '57P01':
            fatal(fault);
            return;
          case 'cut-after':
            isAnswerLost = true;
            break;
          case '40001':
          case '53100':
          case '55P03':
          case '57014':
            database.write(query(`do $$ begin raise exception 'as the test wants' using errcode = '${fault}'; end $$`));
            return;
        }
        database.write(call);
      }),
    );
    database.on(
      'data',
      messages(false, (kind, message) => {
        if (!isAnswerLost) client.write(message);
        else if (kind === 'Z') cut();
      }),
    );
  }
}

/** Splits a stream into messages: a letter, a length of four bytes, the rest; a client's first one has no letter. */
function messages(isOfClient: boolean, heard: (kind: string, message: Buffer) => void): (bytes: Buffer) => void {
  let rest = Buffer.alloc(0);
  let isFirst = isOfClient;
  return (bytes) => {
    rest = Buffer.concat([rest, bytes]);
    for (;;) {
      const letters = isFirst ? 0 : 1;
      if (rest.length < letters + 4) return;
      const length = letters + rest.readUInt32BE(letters);
      if (rest.length < length) return;
      const message = rest.subarray(0, length);
      rest = rest.subarray(length);
      heard(isFirst ? 'startup' : String.fromCharCode(message[0]!), message);
      isFirst = false;
    }
  };
}

function message(letter: string, body: string): Buffer {
  const bytes = Buffer.from(`${letter}\0\0\0\0${body}\0`);
  bytes.writeUInt32BE(bytes.length - 1, 1);
  return bytes;
}

const query = (text: string): Buffer => message('Q', text);

const errorResponse = (code: string): Buffer => message('E', `SFATAL\0VFATAL\0C${code}\0Mas the test wants\0`);
