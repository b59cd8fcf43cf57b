/** What lies over the views: the palette, or the help. */
import { signal } from '@preact/signals'

export const overlay = signal<'palette' | 'help' | null>(null)
