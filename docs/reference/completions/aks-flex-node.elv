
use builtin;
use str;

set edit:completion:arg-completer[aks-flex-node] = {|@words|
    fn spaces {|n|
        builtin:repeat $n ' ' | str:join ''
    }
    fn cand {|text desc|
        edit:complex-candidate $text &display=$text' '(spaces (- 14 (wcswidth $text)))$desc
    }
    var command = 'aks-flex-node'
    for word $words[1..-1] {
        if (str:has-prefix $word '-') {
            break
        }
        set command = $command';'$word
    }
    var completions = [
        &'aks-flex-node'= {
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -h 'Print help'
            cand --help 'Print help'
            cand -V 'Print version'
            cand --version 'Print version'
            cand start 'Make this host a node of the cluster that the configuration names; running it again changes nothing'
            cand bootstrap 'Make this host a node of the cluster that the configuration names; running it again changes nothing'
            cand status 'Show what the node is now'
            cand reset 'Take everything away that `start` made; the configuration stays'
            cand unbootstrap 'Take everything away that `start` made; the configuration stays'
            cand daemon 'Keep the node: what the agent''s service runs'
            cand agent 'Keep the node: what the agent''s service runs'
            cand plan 'Print the steps that an operation would run; changes nothing'
            cand bundle 'Pack release files that you have into an offline bundle'
            cand version 'Print what this program is'
            cand completion 'Print a completion script for a shell'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'aks-flex-node;start'= {
            cand --config 'The configuration file; root''s and not readable by others'
            cand --wait 'What to wait for at the end [default: ready; a node that only lacks its network plugin then ends well]'
            cand --timeout 'How long to wait for it, as 90s or 5m'
            cand --output 'Text for people, or JSON for programs'
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'aks-flex-node;bootstrap'= {
            cand --config 'The configuration file; root''s and not readable by others'
            cand --wait 'What to wait for at the end [default: ready; a node that only lacks its network plugin then ends well]'
            cand --timeout 'How long to wait for it, as 90s or 5m'
            cand --output 'Text for people, or JSON for programs'
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'aks-flex-node;status'= {
            cand --output 'Text for people, or JSON for programs'
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'aks-flex-node;reset'= {
            cand --output 'Text for people, or JSON for programs'
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -y 'Do not ask'
            cand --yes 'Do not ask'
            cand --keep-images 'Keep /var/lib/containerd with the images in it'
            cand --remove-agent 'Remove the installed agent too'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'aks-flex-node;unbootstrap'= {
            cand --output 'Text for people, or JSON for programs'
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -y 'Do not ask'
            cand --yes 'Do not ask'
            cand --keep-images 'Keep /var/lib/containerd with the images in it'
            cand --remove-agent 'Remove the installed agent too'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'aks-flex-node;daemon'= {
            cand --config 'The configuration file; root''s and not readable by others'
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'aks-flex-node;agent'= {
            cand --config 'The configuration file; root''s and not readable by others'
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'aks-flex-node;plan'= {
            cand --config 'The configuration file; root''s and not readable by others'
            cand --output 'Text for people, or JSON for programs'
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'aks-flex-node;bundle'= {
            cand --kubelet 'The kubelet program, or an archive that has it'
            cand --kubectl 'The kubectl program, likewise'
            cand --containerd 'containerd: the release''s .tar.gz, or a directory with its programs'
            cand --runc 'The runc program'
            cand --cni 'The CNI plugins: the release''s .tgz, or a directory with them'
            cand --crictl 'crictl: the release''s .tar.gz, or the program'
            cand --kube-proxy 'The kube-proxy program; older agents want it in a bundle, this one does not'
            cand --image 'An image archive as `ctr images export` or `docker save` write it; may be repeated'
            cand --arch 'The architecture of the files [default: this machine''s]'
            cand --kubernetes-version 'The version of kubelet, kubectl and kube-proxy, where neither file name nor program tells it'
            cand --containerd-version 'The version of containerd, likewise'
            cand --runc-version 'The version of runc, likewise'
            cand --cni-version 'The version of the CNI plugins, likewise'
            cand --crictl-version 'The version of crictl, likewise'
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'aks-flex-node;version'= {
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'aks-flex-node;completion'= {
            cand --log-level 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'aks-flex-node;help'= {
            cand start 'Make this host a node of the cluster that the configuration names; running it again changes nothing'
            cand status 'Show what the node is now'
            cand reset 'Take everything away that `start` made; the configuration stays'
            cand daemon 'Keep the node: what the agent''s service runs'
            cand plan 'Print the steps that an operation would run; changes nothing'
            cand bundle 'Pack release files that you have into an offline bundle'
            cand version 'Print what this program is'
            cand completion 'Print a completion script for a shell'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'aks-flex-node;help;start'= {
        }
        &'aks-flex-node;help;status'= {
        }
        &'aks-flex-node;help;reset'= {
        }
        &'aks-flex-node;help;daemon'= {
        }
        &'aks-flex-node;help;plan'= {
        }
        &'aks-flex-node;help;bundle'= {
        }
        &'aks-flex-node;help;version'= {
        }
        &'aks-flex-node;help;completion'= {
        }
        &'aks-flex-node;help;help'= {
        }
    ]
    $completions[$command]
}
