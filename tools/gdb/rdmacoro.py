"""What waits in a program, from a core file or a stopped process: for gdb, where `scheduler::describe` cannot be called.

    gdb PROGRAM CORE -batch -x tools/gdb/rdmacoro.py -ex rdmacoro-describe

Needs debug information (-g). It reads the lists that hold operations by the names of their members, and calls nothing: schedulers,
waits for objects of the program, sleeps, sends that wait or are carried in pieces or by a rendezvous, posted receives.
"""
import gdb

NAMESPACE = 'rdmacoro::'
DETAIL = NAMESPACE + 'detail::'


def pointer(name):
    return gdb.lookup_type(name).pointer()


def elements(head, tag, element):
    """The elements of an `intrusive_list<element, tag>`."""
    end = head['head_'].address
    at = head['head_']['next']
    node = pointer(DETAIL + 'list_node<' + tag + '>')
    while at and at != end:
        yield at.cast(node).cast(pointer(element)).dereference()
        at = at['next']


def pointers(storage, element):
    """The elements of a `plain_vector<element*>`."""
    data = storage['data_'].cast(pointer(element).pointer())
    return (data[n] for n in range(int(storage['size_'])))


def enumerator(value):
    return str(value).rsplit('::', 1)[-1]


def tags(wanted):
    mask = int(wanted['mask'])
    if mask == 0:
        return 'any tag'
    return f"tag {int(wanted['tag'])}" + ('' if mask == 2**64 - 1 else f' under mask {mask:#x}')


def named(found, name):
    """The base class or member of an engine with that type's name, however deep; None where there is none."""
    kind = found.type.strip_typedefs()
    if kind.name == DETAIL + name:
        return found
    if kind.code != gdb.TYPE_CODE_STRUCT:
        return None
    for field in kind.fields():
        if field.is_base_class or field.name in ('engine', 'fallback_'):
            inner = named(found[field], name)
            if inner is not None:
                return inner
    return None


def describe_waits(scheduler):
    for wait in elements(scheduler['parked_waits_'], DETAIL + 'parked_wait', DETAIL + 'parked_wait'):
        operation = wait['operation_']
        if operation and enumerator(operation['state_']) == 'done':
            continue
        facts = wait['facts_']
        yield f"{facts['what'].string()}: {facts['stage'].string()}; {enumerator(facts['next'])}"
    for timer in pointers(scheduler['timers_']['heap_'], DETAIL + 'timer_node'):
        if timer['of_sleep']:
            yield f"sleep until {int(timer['deadline']['__d']['__r'])} ns of the scheduler's clock; time"


def describe_send(send, stage, actor):
    what = 'ssend' if send['synchronous_'] else 'send'
    return f"{what}, tag {int(send['tag_'])}: {stage}; {actor}"


def describe_engines(connection):
    try:
        everything = connection['engines_']['all_']
    except gdb.error:
        return  # its type has no debug information
    for field in everything.type.fields():
        engine = everything[field]
        pieces = named(engine, 'segmented_engine')
        if pieces is not None:
            for n in range(int(pieces['out_']['size_'])):
                request = pieces['out_']['all_'][n]['request']
                if request:
                    yield describe_send(request.dereference(),
                                        f"announced, {int(request['sent_'])} bytes have gone, "
                                        + ('met' if request['answered_'] else 'no receive has met it'),
                                        'peer_poll' if request['answered_'] else 'peer_receive')
        halves = named(engine, 'rendezvous_halves')
        if halves is not None:
            slots = halves['out_']['slots_']
            for n in range(int(slots['size_'])):
                base = slots['all_'][n]['slot'].cast(pointer(DETAIL + 'owing_slot'))
                slot = base.cast(pointer(DETAIL + 'rendezvous_sender::slot'))
                if slot['request']:
                    state = enumerator(slot['now'])
                    yield describe_send(slot['request'].dereference(), state,
                                        'peer_receive' if state == 'requested' else 'peer_poll')


def posted(matcher):
    if matcher['sole_']:
        yield matcher['sole_'].dereference()
    every = [matcher['receives_']]
    for n in range(int(matcher['records_']['size_'])):
        record = matcher['records_']['all_'][n]
        if record:
            every.append(record['receives'])
    request = DETAIL + 'receive_request'
    for some in every:
        for n in range(int(some['exact_']['size_'])):
            yield from elements(some['exact_']['lists_'][n], request, request)
        for masked in ('masked_', 'high_'):
            yield from elements(some[masked], request, request)


def describe_connection(connection):
    phase = enumerator(connection['phase_'])
    if phase == 'down':
        return
    yield f"connection {connection.address} to source {int(connection['source_'])}, {phase}, " \
          f"{int(connection['active_sends_'])} sends under way, credit {int(connection['credits_']['available_'])}"
    for send in elements(connection['queue_'], DETAIL + 'send_request', DETAIL + 'send_request'):
        yield '  ' + describe_send(send, 'waits in the queue', 'credit' if connection['starved_'] else 'room in the link')
    for line in describe_engines(connection.cast(connection.dynamic_type)):
        yield '  ' + line


def describe_mailbox(mailbox):
    for receive in posted(mailbox['matcher_']):
        source = int(receive['source_'])
        yield f"recv, {tags(receive['wanted_'])}, from " + ('any' if source == 2**32 - 1 else f'source {source}') \
              + ': posted, no message has met it; peer_send'


def describe_scheduler(scheduler):
    yield from describe_waits(scheduler)
    for held in elements(scheduler['described_'], DETAIL + 'described', DETAIL + 'described'):
        function = str(held['describe'])
        for name, describe in (('connection_base', describe_connection), ('mailbox_base', describe_mailbox)):
            if name + '::describe' in function:
                yield from describe(held['self'].cast(pointer(DETAIL + name)).dereference())


class Describe(gdb.Command):
    """Lists the pending operations of every scheduler of the program."""

    def __init__(self):
        super().__init__('rdmacoro-describe', gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        found = gdb.lookup_global_symbol(DETAIL + 'all_schedulers')
        if found is None:
            raise gdb.GdbError('no debug information of rdmacoro: compile with -g')
        gdb.execute('set language c++')  # the innermost frame may be of another
        try:
            self.describe(found.value()['first_'])
        finally:
            gdb.execute('set language auto')

    @staticmethod
    def describe(scheduler):
        while scheduler:
            print(f'scheduler {scheduler}:')
            lines = list(describe_scheduler(scheduler.dereference()))
            for line in lines or ['no operation is pending']:
                print('  ' + line)
            scheduler = scheduler['next_of_all_']


Describe()
