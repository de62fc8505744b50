import type { ComponentType, SVGProps } from 'react';
import type { AnyRoute } from '@tanstack/react-router';

import type { Language } from '../i18n/language.ts';

/** Groups of the navigation, in their order. */
export type NavigationGroup = 'use' | 'money' | 'account' | 'operator';

/** A text that is there before any catalogue: entries of the navigation, titles of tabs. */
export type Label = Readonly<Record<Language, string>>;

export type Role = 'owner' | 'admin' | 'billing' | 'developer' | 'viewer';

/** What one does at a page, by which the search finds it: a verb and its object. */
export interface Action {
  readonly label: Label;
  /** Where it begins; the page of its entry when left out. */
  readonly to?: string;
  /** Who may do it; everybody who sees the page when left out. */
  readonly roles?: readonly Role[];
}

export interface NavigationEntry {
  readonly to: string;
  readonly label: Label;
  readonly icon: ComponentType<SVGProps<SVGSVGElement>>;
  readonly group: NavigationGroup;
  /** Entries of a group by this number. */
  readonly order: number;
  /** Who sees it; everybody when left out. The API decides in any case. */
  readonly roles?: readonly Role[];
  readonly actions?: readonly Action[];
}

/** A part of the console: the pages of one folder, with their routes and their entries of the navigation. */
export interface Area {
  /** Its folder. */
  readonly name: string;
  readonly navigation: readonly NavigationEntry[];
  /** For people who are signed in, inside the shell. */
  readonly routes: readonly AnyRoute[];
  /** For everybody, without the shell: signing in, mostly. */
  readonly openRoutes?: readonly AnyRoute[];
}
