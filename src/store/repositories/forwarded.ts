import type { Repositories, RepositoryOperation } from './repositories.ts';

/** Repositories whose operations run elsewhere: in a thread, in another process, or with something in addition. */
export function forwardedRepositories(
  carryOut: (name: RepositoryOperation, request: unknown) => Promise<unknown>,
): Repositories {
  return new Proxy({} as Repositories, {
    // With `then`, `await` would take it for a promise.
    get: (_target, name) =>
      name === 'then' ? undefined : (request: unknown) => carryOut(name as RepositoryOperation, request),
  });
}

/** Carries out an operation by its name. */
export function carryOut(repositories: Repositories, name: RepositoryOperation, request: unknown): Promise<unknown> {
  return (repositories[name] as (request: unknown) => Promise<unknown>)(request);
}
