import type { FetchSettings } from '../../src/images/fetcher.ts';
import type { ImageRules } from '../../src/images/image-url.ts';
import { createNameResolver } from '../../src/images/resolver.ts';

/** What holds without a configuration. */
export const defaultImageRules: ImageRules = { fetches: true, allowedHosts: new Set(), ownHosts: new Set() };

export const defaultFetchSettings: FetchSettings = { rules: defaultImageRules, resolver: createNameResolver([]) };
