/** What lies between a replica and its database, and what can go wrong with it. */
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';

/** Passes everything on, until it is set to do something else. Close it after the test. */
export class Wire {
  readonly #server: Server;
  readonly #databasePort: number;
  readonly #sockets = new Set<Socket>();
  /** The next bytes with this text in them reach the database, and nothing of that connection comes back. */
  loseAnswerTo: string | undefined;
  /**
   * The same for one of that many messages to the database, whatever they say. Then the connection breaks, or stays and says
   * nothing any more.
   */
  loseEach: number | undefined;
  breaksAfterLoss = true;
  #counted = 0;
  lost = 0;
  /** Calls of NOTIFY do not get through, as behind a pooler in transaction mode. */
  readonly #isDeaf: boolean;
  callsLost = 0;
  /** How long bytes are on their way to the replica. */
  delayMs = 0;
  #isCut = false;

  private constructor(databasePort: number, isDeaf: boolean) {
    this.#databasePort = databasePort;
    this.#isDeaf = isDeaf;
    this.#server = createServer((client) => this.#join(client));
  }

  static async open(databasePort: number, { isDeaf = false } = {}): Promise<Wire> {
    const wire = new Wire(databasePort, isDeaf);
    await new Promise<void>((resolve) => wire.#server.listen(0, '127.0.0.1', resolve));
    return wire;
  }

  /** The same database, on this wire. */
  url(url: string): string {
    return url.replace(`:${this.#databasePort}/`, `:${(this.#server.address() as AddressInfo).port}/`);
  }

  /** Breaks what there is, and refuses what comes, until it is mended. */
  cut(): void {
    this.#isCut = true;
    for (const socket of this.#sockets) socket.destroy();
  }

  mend(): void {
    this.#isCut = false;
  }

  close(): void {
    this.#server.close();
    this.cut();
  }

  #join(client: Socket): void {
    if (this.#isCut) {
      client.destroy();
      return;
    }
    const database = connect(this.#databasePort, '127.0.0.1');
    let isMute = false;
    const mute = (): void => {
      this.lost++;
      isMute = true;
    };
    for (const socket of [client, database]) {
      this.#sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => (client.destroy(), database.destroy(), this.#sockets.delete(socket)));
    }
    client.on('data', (bytes) => {
      if (this.loseAnswerTo !== undefined && bytes.includes(this.loseAnswerTo)) {
        this.loseAnswerTo = undefined;
        mute();
      } else if (this.loseEach !== undefined && ++this.#counted % this.loseEach === 0) mute();
      database.write(bytes);
    });
    const heard = this.#isDeaf ? withoutCalls(() => this.callsLost++) : (bytes: Buffer) => bytes;
    database.on('data', (bytes) => {
      // It has answered, so it is committed; the answer is lost and so is the connection.
      if (isMute) {
        if (this.breaksAfterLoss) client.destroy();
      } else if (this.delayMs > 0) setTimeout(() => client.write(heard(bytes)), this.delayMs);
      else client.write(heard(bytes));
    });
  }
}

/** Takes the messages `NotificationResponse` out of what a server says: a letter, a length of four bytes, the rest. */
function withoutCalls(lost: () => void): (bytes: Buffer) => Buffer {
  let rest = Buffer.alloc(0);
  return (bytes) => {
    rest = Buffer.concat([rest, bytes]);
    const kept: Buffer[] = [];
    while (rest.length >= 5) {
      const length = 1 + rest.readUInt32BE(1);
      if (rest.length < length) break;
      if (rest[0] === 0x41) lost();
      else kept.push(rest.subarray(0, length));
      rest = rest.subarray(length);
    }
    return Buffer.concat(kept);
  };
}
