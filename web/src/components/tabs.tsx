import * as Primitive from 'radix-ui/tabs';
import type { ReactNode } from 'react';

import styles from './tabs.module.css';

export interface Tab {
  readonly value: string;
  readonly title: string;
  readonly content: ReactNode;
}

interface TabsProps {
  readonly label: string;
  readonly tabs: readonly Tab[];
  /** With `onChange`: the page says which one is shown, for example from its URL. */
  readonly value?: string;
  readonly onChange?: (value: string) => void;
}

export function Tabs({ label, tabs, value, onChange }: TabsProps) {
  const state = value === undefined ? { defaultValue: tabs[0]!.value } : { value };
  return (
    <Primitive.Root {...state} {...(onChange === undefined ? {} : { onValueChange: onChange })}>
      <Primitive.List className={styles['list']} aria-label={label}>
        {tabs.map((tab) => (
          <Primitive.Trigger key={tab.value} value={tab.value} className={styles['tab']}>
            {tab.title}
          </Primitive.Trigger>
        ))}
      </Primitive.List>
      {tabs.map((tab) => (
        <Primitive.Content key={tab.value} value={tab.value} tabIndex={-1}>
          {tab.content}
        </Primitive.Content>
      ))}
    </Primitive.Root>
  );
}
