import { ApiError } from '../platform/errors.ts';
import type { AccountRoute } from './route.ts';

export interface Match {
  readonly route: AccountRoute;
  /** Parameters by their names in the route's path, decoded but not checked. */
  readonly params: Readonly<Record<string, string>>;
}

interface Node {
  readonly fixed: Map<string, Node>;
  /** The node for segments that are a parameter. */
  any: Node | undefined;
  /** Nodes for parameters with an ending, such as `{id}.pdf`, by the ending. */
  readonly ended: Map<string, Node>;
  readonly routes: Map<string, { readonly route: AccountRoute; readonly names: readonly string[] }>;
}

const newNode = (): Node => ({ fixed: new Map(), any: undefined, ended: new Map(), routes: new Map() });

/** Finds routes by method and path. A fixed segment takes precedence over a parameter with an ending, and that over one without. */
export class Router {
  readonly #root = newNode();

  constructor(routes: readonly AccountRoute[]) {
    for (const route of routes) {
      let node = this.#root;
      const names: string[] = [];
      for (const segment of segmentsOf(route.path)) {
        const [, name, ending] = /^\{(\w+)\}(\.\w+)?$/.exec(segment) ?? [];
        if (name !== undefined) names.push(name);
        if (ending !== undefined) {
          let next = node.ended.get(ending);
          if (next === undefined) node.ended.set(ending, (next = newNode()));
          node = next;
        } else if (name !== undefined) {
          node = node.any ??= newNode();
        } else {
          let next = node.fixed.get(segment);
          if (next === undefined) node.fixed.set(segment, (next = newNode()));
          node = next;
        }
      }
      const method = route.method.toUpperCase();
      if (node.routes.has(method)) throw new Error(`two routes are ${method} ${route.path}`);
      node.routes.set(method, { route, names });
    }
  }

  /** Throws `http_404`, or `http_405` with the existing methods. HEAD is answered like GET. */
  find(method: string, path: string): Match {
    const values: string[] = [];
    let node = this.#root;
    for (const segment of segmentsOf(path)) {
      const fixed: Node | undefined = node.fixed.get(segment);
      const ending = /.(\.\w+)$/.exec(segment)?.[1] ?? '';
      const ended: Node | undefined = fixed === undefined ? node.ended.get(ending) : undefined;
      // An empty segment identifies nothing.
      const next: Node | undefined = fixed ?? ended ?? (segment === '' ? undefined : node.any);
      if (next === undefined) throw noRoute();
      if (fixed === undefined) values.push(decoded(ended === undefined ? segment : segment.slice(0, -ending.length)));
      node = next;
    }
    if (node.routes.size === 0) throw noRoute();
    const found = node.routes.get(method === 'HEAD' ? 'GET' : method);
    if (found === undefined) {
      const allow = [...node.routes.keys()].flatMap((known) => (known === 'GET' ? ['GET', 'HEAD'] : [known]));
      throw new ApiError('http_405', `Use ${allow.join(', ')} here.`, { headers: { allow: allow.join(', ') } });
    }
    return {
      route: found.route,
      params: Object.fromEntries(found.names.map((name, index) => [name, values[index] ?? ''])),
    };
  }
}

const noRoute = (): ApiError => new ApiError('http_404', 'Route not found.');
const segmentsOf = (path: string): readonly string[] => path.split('/').slice(1);

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    throw noRoute();
  }
}
